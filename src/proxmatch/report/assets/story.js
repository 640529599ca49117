/** The plain methods that are told beside the learned prior. */
const BASELINES = ["wiener", "tv"];

function tellStory() {
  const frame = $("#compare");
  const start = DATA.story;
  if (!frame || !PICTURES || !PICTURES.entries.length) return;
  const { entries, truth, degraded, frames } = PICTURES;
  const last = frames.length - 1;
  const key = (entry) => JSON.stringify([entry.method, entry.n, entry.set, entry.relaxation]);
  const home = DATA.denoisers.findIndex((d) => d.family === start.family && d.source === start.source);
  const state = { problem: start.problem, denoiser: String(home), image: start.image, adapted: null, left: "source", right: "adapted" };
  const first = entries.find((e) => belongs(e, DATA.denoisers[home]) &&
    ["problem", "relaxation", "image", "method", "n"].every((name) => e[name] === start[name]));
  if (first) state.adapted = key(first);

  const matching = (upto) => entries.filter((entry) => {
    const tests = {
      problem: () => entry.problem === state.problem,
      image: () => entry.image === state.image,
      denoiser: () => belongs(entry, DATA.denoisers[state.denoiser]),
    };
    return upto.every((name) => tests[name]());
  });
  const everything = ["problem", "image", "denoiser"];
  const specs = [
    { name: "problem", label: "Problem", options: () => plainOptions(entries.map((e) => e.problem)) },
    { name: "image", label: "Image", options: () => imageOptions(matching(["problem"])) },
    { name: "denoiser", label: "Denoiser", options: () => denoiserOptions(matching(["problem", "image"])) },
    { name: "adapted", label: "Adapted by", options: () => {
      const found = matching(everything).filter((e) => !["source", "reference", ...BASELINES].includes(e.method));
      const sets = distinct(found.map((e) => e.set)).length > 1;
      return found.sort((a, b) => methodOrder(a.method) - methodOrder(b.method) || a.n - b.n || a.set - b.set)
        .map((e) => ({ value: key(e), label: look(e.method).label + (e.n ? `, n = ${e.n}` : "") + (sets && e.n ? `, set ${e.set}` : "") + relaxed(e, found) }));
    } },
  ];

  const [under, over] = $$("canvas", frame);
  const range = $("input", frame);
  const divider = $(".divider", frame);
  const sides = { left: $(".left select", frame), right: $(".right select", frame) };
  let shown = {};
  let turn = 0;

  function divide() {
    over.style.clipPath = `inset(0 ${100 - range.value}% 0 0)`;
    divider.style.left = `${range.value}%`;
  }

  function place() {
    const names = Object.keys(shown);
    if (!shown[state.left]) state.left = names[0];
    if (!shown[state.right]) state.right = names[names.length - 1];
    for (const [side, select] of Object.entries(sides)) {
      select.replaceChildren(...names.map((name) => node("option", { value: name, selected: name === state[side] ? "" : null }, shown[name].label)));
    }
    show(over, shown[state.left].data, `left: ${shown[state.left].label}`);
    show(under, shown[state.right].data, `right: ${shown[state.right].label}`);
    for (const item of $$("#stages li")) $("button", item).setAttribute("aria-pressed", item.dataset.stage === state.right);
  }

  async function render() {
    const mine = ++turn;
    choose($("#story-controls"), specs, state, render);
    const found = matching(everything);
    const strip = (method) => asItIs(found.filter((e) => e.method === method));
    const adapted = found.find((e) => key(e) === state.adapted);
    const parts = {
      degraded: ["degraded", degraded[state.problem]?.[state.image]],
      ...Object.fromEntries(BASELINES.map((name) => [name, [look(name)?.label, strip(name)]])),
      source: ["source denoiser", strip("source")],
      adapted: [adapted ? look(adapted.method).label + (adapted.n ? ` · n = ${adapted.n}` : "") : "adapted", adapted],
      reference: ["reference", strip("reference")],
      truth: ["truth", truth[state.image]],
    };
    const next = {};
    for (const [name, [label, item]] of Object.entries(parts)) {
      if (item === undefined || item === null) continue;
      const data = typeof item === "number" ? await pixels(item) : await pixels(item.file, last, 1);
      next[name] = { label, data, entry: typeof item === "number" ? null : item };
    }
    if (mine !== turn) return;
    shown = next;
    for (const item of $$("#stages li")) {
      const stage = shown[item.dataset.stage];
      item.hidden = !stage;
      if (!stage) continue;
      const canvas = node("canvas");
      show(canvas, stage.data);
      let thumb = $("img", item);
      if (!thumb) { thumb = node("img"); $(".blank", item).replaceWith(thumb); }
      thumb.src = canvas.toDataURL();
      thumb.alt = "";
      $(".name", item).textContent = stage.label;
      const value = stage.entry && known(stage.entry.psnr) ? stage.entry.psnr
        : shown.truth && item.dataset.stage !== "truth" ? psnr(stage.data, shown.truth.data) : null;
      $(".this", item).replaceChildren(...(known(value) ? [value.toFixed(1), node("small", {}, "dB")] : []));
      const cell = stage.entry && DATA.cells.find((c) => belongs(c, DATA.denoisers[state.denoiser]) &&
        ["method", "n", "problem", "relaxation"].every((name) => c[name] === stage.entry[name]));
      $(".mean", item).textContent = cell && known(cell.psnr) ? `${write(cell.psnr, 1)} dB on average of ${cell.images}` : "";
    }
    frame.hidden = Object.keys(shown).length === 0;
    if (!frame.hidden) place();
  }

  range.addEventListener("input", divide);
  for (const [side, select] of Object.entries(sides)) {
    select.addEventListener("change", () => { state[side] = select.value; place(); });
  }
  for (const item of $$("#stages li")) {
    $("button", item).addEventListener("click", () => { state.right = item.dataset.stage; place(); });
  }
  divide();
  render();
}

/** Of the strips of a denoiser that was not adapted, the one at t = 1 where there is one. */
const relaxationOrder = (entry) => DATA.relaxations.findIndex(({ name }) => name === entry.relaxation);
const asItIs = (found) => found.sort((a, b) => relaxationOrder(a) - relaxationOrder(b))[0];
/** Which relaxation an entry has, where there is more than one of its method. */
function relaxed(entry, found) {
  const same = found.filter((e) => e.method === entry.method && e.n === entry.n && e.set === entry.set);
  return same.length > 1 ? `, ${DATA.relaxations[relaxationOrder(entry)].label}` : "";
}
const methodOrder = (method) => Object.keys(DATA.methods).indexOf(method);
tellStory();
