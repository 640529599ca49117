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

/** Many claims start with those of one denoiser and problem; what names neither is always there. */
function filterClaims() {
  const tests = $$(".tests > li");
  if (!tests.length) return;
  const buttons = $$(".tally button");
  const wanted = new Set(buttons.map((button) => button.dataset.verdict));
  const all = { value: "", label: "all" };
  const choices = (name, label) => {
    const found = distinct(tests.map((test) => test.dataset[name])).filter((value) => value !== "");
    return found.length > 1 ? [...found.map((value) => ({ value, label: label(value) })), all] : [all];
  };
  const denoisers = choices("denoiser", (value) => DATA.claimed[value]);
  const problems = choices("problem", (value) => value);
  const many = tests.length > 24;
  const state = { denoiser: many ? denoisers[0].value : "", problem: many ? problems[0].value : "" };
  const specs = [
    { name: "denoiser", label: "Denoiser", options: () => denoisers },
    { name: "problem", label: "Problem", options: () => problems },
  ];
  const chosen = (test) => ["denoiser", "problem"].every((name) => !state[name] || ["", state[name]].includes(test.dataset[name]));
  function render() {
    choose($("#claim-controls"), specs, state, render);
    for (const button of buttons) {
      const count = tests.filter((test) => chosen(test) && test.dataset.verdict === button.dataset.verdict).length;
      $("b", button).textContent = count;
      button.disabled = count === 0;
      button.setAttribute("aria-pressed", wanted.has(button.dataset.verdict));
    }
    for (const test of tests) test.hidden = !chosen(test) || !wanted.has(test.dataset.verdict);
    for (const claim of $$(".claim")) claim.hidden = $$(".tests > li", claim).every((test) => test.hidden);
  }
  for (const button of buttons) {
    button.addEventListener("click", () => {
      if (!wanted.delete(button.dataset.verdict)) wanted.add(button.dataset.verdict);
      render();
    });
  }
  render();
}

arrangeTables();
filterClaims();
