function sortable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  $$("thead th[scope]", table).forEach((head) => {
    const column = head.cellIndex;
    const numeric = head.classList.contains("num");
    const button = node("button", { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const orders = numeric ? ["descending", "ascending", null] : ["ascending", "descending", null];
      const order = orders[(orders.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
      $$("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
      if (order) head.setAttribute("aria-sort", order);
      table.classList.toggle("sorted", Boolean(order));
      body.append(...(order ? ordered(original, column, numeric, order === "ascending" ? 1 : -1) : original));
    });
  });
}

/** Rows without a value come last, whatever the order. */
function ordered(rows, column, numeric, sign) {
  const value = (row) => (numeric ? row.cells[column].dataset.value : row.cells[column].textContent.trim());
  return [...rows].sort((a, b) => {
    const [p, q] = [value(a), value(b)];
    if (p === "" || q === "") return (p === "") - (q === "");
    return sign * (numeric ? p - q : p.localeCompare(q));
  });
}

function arrangeTables() {
  const sheets = $$(".sheet");
  if (!sheets.length) return;
  $$(".sortable").forEach(sortable);
  const shots = distinct($$(".sheet tr[data-n]").map((row) => Number(row.dataset.n))).filter(Boolean).sort((a, b) => a - b);
  const state = { n: shots.length ? String(shots[Math.min(1, shots.length - 1)]) : "all" };
  const denoisers = () => sheets.filter((sheet) => sheet.dataset.problem === state.problem)
    .map((sheet) => ({ value: sheet.dataset.denoiser, label: DATA.denoisers[sheet.dataset.denoiser].label }));
  const specs = [
    { name: "problem", label: "Problem", options: () => plainOptions(sheets.map((sheet) => sheet.dataset.problem)) },
    { name: "denoiser", label: "Denoiser", options: denoisers },
    { name: "n", label: "Adaptation images", options: () => (shots.length > 1 ? [...plainOptions(shots), { value: "all", label: "all" }] : [{ value: "all", label: "all" }]) },
  ];
  function render() {
    choose($("#table-controls"), specs, state, render);
    for (const sheet of sheets) {
      sheet.hidden = sheet.dataset.problem !== state.problem || sheet.dataset.denoiser !== state.denoiser;
      for (const row of $$("tr[data-n]", sheet)) row.hidden = state.n !== "all" && row.dataset.n !== "0" && row.dataset.n !== state.n;
    }
  }
  render();
}

function filterClaims() {
  const buttons = $$(".tally button");
  const wanted = new Set(buttons.map((button) => button.dataset.verdict));
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const name = button.dataset.verdict;
      if (wanted.has(name)) wanted.delete(name);
      else wanted.add(name);
      button.setAttribute("aria-pressed", wanted.has(name));
      for (const claim of $$(".claim")) {
        const tests = $$(".tests > li", claim);
        for (const test of tests) test.hidden = !wanted.has(test.dataset.verdict);
        claim.hidden = tests.every((test) => test.hidden);
      }
    });
  }
}

arrangeTables();
filterClaims();
