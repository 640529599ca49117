const page = { id: null, choices: null, picture: null, busy: null, current: null, before: null, runs: [], samples: new Map() };
const headers = () => ({ "X-Proxmatch-Page": page.id ?? "new" });

/** What the server answers, as JSON; its message as an error. */
async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: headers() });
  } catch {
    throw new Error("The app has ended. Start it again with proxmatch app.");
  }
  if (answer.status === 204) return null;
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error ?? `the server says ${answer.status}`);
  return said;
}
const post = (path, body) => ask(path, { method: "POST", body: JSON.stringify(body) });
const nice = (name) => name.replace("stereo_", "").replaceAll("_", " ");
const label = (name) => page.choices.denoisers.find((d) => d.name === name)?.label ?? name;

function fail(text) {
  $("#error").textContent = text;
  $("#error").hidden = !text;
}

// ---- pictures

function addPicture(id, name, thumbnail) {
  const button = node("button", { type: "button", title: nice(name), "aria-label": nice(name), "aria-pressed": "false", "data-id": id, onclick: () => pick(id, name) }, thumbnail());
  $("#gallery").append(node("li", {}, button));
  const box = node("input", { type: "checkbox", "aria-label": `adapt to ${nice(name)}`, value: id, onchange: () => { $("#adapt").disabled = !ticked().length || page.busy !== null; } });
  $("#samples").append(node("li", {}, node("label", {}, box, thumbnail())));
}
const ticked = () => $$("#samples input:checked").map((box) => box.value);

function pick(id, name) {
  page.picture = { id, name };
  for (const button of $$("#gallery button")) button.setAttribute("aria-pressed", String(button.dataset.id === id));
  $("#run").disabled = page.busy !== null;
  if (!page.busy && !page.current) $("#status").textContent = `Ready: ${nice(name)}.`;
}

/** A small picture of a file, drawn here; what the browser cannot show gets none. */
async function small(file) {
  const canvas = node("canvas", { width: 96, height: 96 });
  try {
    const bitmap = await createImageBitmap(file);
    const side = Math.min(bitmap.width, bitmap.height);
    canvas.getContext("2d").drawImage(bitmap, (bitmap.width - side) / 2, (bitmap.height - side) / 2, side, side, 0, 0, 96, 96);
  } catch { /* a kind the browser does not know, such as TIFF */ }
  return canvas;
}

async function take(files) {
  const refused = [];
  for (const file of files) {
    try {
      if (file.size > page.choices.limits.upload) throw new Error(`the file is too large: at most ${page.choices.limits.upload / 1e6} MB`);
      const said = await ask(`/api/pictures?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
      const drawn = await small(file);
      addPicture(said.id, said.name, () => {
        const copy = node("canvas", { width: 96, height: 96, "aria-hidden": "true" });
        copy.getContext("2d").drawImage(drawn, 0, 0);
        return copy;
      });
      pick(said.id, said.name);
    } catch (error) {
      refused.push(`${file.name}: ${error.message}`);
    }
  }
  $("#refused").textContent = refused.join("\n");
  $("#refused").hidden = !refused.length;
}

// ---- what to do

const problemNow = () => page.choices.problems.find((p) => p.name === $("#problem").value);
const denoiserNow = () => page.choices.denoisers.find((d) => d.name === $("#denoiser").value);

function showOptions() {
  $("#options").replaceChildren(...problemNow().options.map((option) => {
    const id = `option-${option.name}`;
    const kind = option.text ? { type: "text" } : { type: "number", step: option.whole ? 1 : "any" };
    return node("div", { class: "control" },
      node("label", { for: id, title: option.help }, option.name.replaceAll("_", " ")),
      node("input", { id, ...kind, "data-option": option.name, value: option.default ?? "", placeholder: option.default === null ? "any" : null, title: option.help }));
  }));
}
function options() {
  const found = {};
  for (const input of $$("#options input")) {
    if (input.value.trim() === "") continue;
    found[input.dataset.option] = input.type === "number" ? Number(input.value) : input.value.trim();
  }
  return found;
}

/** The slider is even in the logarithm of the strength. */
function strengthOf(place) {
  const { low, high } = denoiserNow();
  return low * (high / low) ** (place / 100);
}
const placeOf = (strength) => {
  const { low, high } = denoiserNow();
  return Math.max(0, Math.min(100, Math.round(100 * Math.log(strength / low) / Math.log(high / low))));
};
function showStrength() {
  const known_ = denoiserNow()?.low != null;
  $("#strength-control").hidden = !known_;
  $("#strength").disabled = false;
  const kind = denoiserNow()?.kind;
  $("#strength-value").textContent = !known_ || $("#usual").checked ? "chosen for you" : `${kind} ${strengthOf(Number($("#strength").value)).toPrecision(2)}`;
}
function fillDenoisers() {
  const before = Object.fromEntries(["denoiser", "reference", "source"].map((id) => [id, $(`#${id}`).value]));
  const choice = (d) => node("option", { value: d.name }, d.label);
  const learned = page.choices.denoisers.filter((d) => d.kind === "level" || d.kind === "t");
  $("#denoiser").replaceChildren(node("option", { value: "auto" }, "choose for me"), ...page.choices.denoisers.map(choice));
  $("#reference").replaceChildren(node("option", { value: "" }, "nothing"), ...learned.map(choice));
  $("#source").replaceChildren(...learned.map(choice));
  for (const [id, value] of Object.entries(before)) if (value) $(`#${id}`).value = value;
}

function wish() {
  const name = $("#denoiser").value;
  const free = name === "auto" || name === "none" || $("#usual").checked;
  return {
    picture: page.picture.id,
    simulate: $("#simulate").value === "yes",
    side: Number($("#side").value),
    problem: $("#problem").value,
    options: options(),
    denoiser: name,
    strength: free ? null : strengthOf(Number($("#strength").value)),
    reference: $("#reference").value || null,
    iterations: Number($("#iterations").value),
  };
}

// ---- jobs

function busy(job) {
  page.busy = job;
  $("#run").disabled = job !== null || !page.picture;
  $("#cancel").disabled = job === null;
  $("#adapt").disabled = job !== null || !ticked().length;
  $("#progress").hidden = job === null;
}

const address = (run, what) => `/api/jobs/${page.id}/${run.id}/${what}`;

function loaded(source) {
  const image = new Image();
  image.src = source;
  return image.decode().then(() => image, () => null);
}

/** Start a job and follow it to its end. */
async function follow(kind, body, about, clicked = false) {
  fail("");
  const mine = { kind, about, clicked, id: null, run: -1, frames: [], pictures: {}, state: null };
  busy(mine);
  goToStage(mine);
  $("#status").textContent = "Waiting.";
  try {
    mine.id = (await post(`/api/${kind}`, body)).job;
    if (mine.gone) { await ask(address(mine, "").slice(0, -1), { method: "DELETE" }); }
    for (;;) {
      const state = await ask(address(mine, "").slice(0, -1));
      mine.state = state;
      tell(mine, state);
      if (kind === "reconstruct") await fetchNew(mine, state);
      if (["done", "failed", "cancelled"].includes(state.status)) break;
      await new Promise((wait) => { setTimeout(wait, 200); });
    }
    ended(mine);
  } catch (error) {
    fail(error.message);
    $("#status").textContent = "Stopped.";
  } finally {
    if (page.busy === mine) busy(null);
  }
}

function tell(mine, state) {
  if (page.busy !== mine) return;
  const words = state.status === "waiting" && state.ahead ? `Waiting: ${state.ahead} before this one.` : `${state.stage[0].toUpperCase()}${state.stage.slice(1)}`;
  $("#status").textContent = words;
  const share = mine.kind === "reconstruct" && state.frames > 1 && !state.facts.preview ? (state.frames - 1) / mine.about.iterations : null;
  if (share === null) $("#progress").removeAttribute("value"); else $("#progress").value = Math.min(1, share);
}

async function fetchNew(mine, state) {
  if (state.run !== mine.run) { mine.run = state.run; mine.frames = []; }
  const missing = state.pictures.filter((name) => !(name in mine.pictures));
  for (const name of missing) mine.pictures[name] = await loaded(address(mine, `pictures/${name}`));
  const from = mine.frames.length;
  const fresh = await Promise.all(Array.from({ length: state.frames - from }, (_, i) => loaded(address(mine, `frames/${state.run}/${from + i}`))));
  for (const image of fresh) if (image) mine.frames.push(image);
  if (!mine.frames.length || (page.busy !== mine && page.current !== mine)) return;
  const still = page.current === mine && Number($("#iteration").value) < from - 1;
  page.current = mine;
  show(mine, still ? Number($("#iteration").value) : mine.frames.length - 1);
  if (from === 0) goToStage(mine); // now there is room for it at the top
}

function ended(mine) {
  const { state } = mine;
  if (state.status === "failed") fail(state.error);
  $("#status").textContent = { done: "Done.", failed: "Failed.", cancelled: "Cancelled." }[state.status];
  if (state.warnings.length) fail(state.warnings.join(" "));
  if (state.status !== "done") return;
  if (mine.kind === "adapt") {
    page.choices.denoisers.unshift(state.facts.adapted);
    fillDenoisers();
    $("#denoiser").value = state.facts.adapted.name;
    showStrength();
    showEvidence(mine);
    return;
  }
  page.runs.unshift(mine);
  const { facts } = state;
  if ($("#usual").checked && facts.strength && denoiserNow()?.low) $("#strength").value = placeOf(facts.strength);
  const button = node("button", { type: "button", onclick: () => { page.before = page.current; page.current = mine; show(mine, mine.frames.length - 1); } }, mine.about.picture);
  $("#history").prepend(node("tr", {}, node("th", { scope: "row" }, button), node("td", {}, mine.about.problem), node("td", {}, label(facts.denoiser)), node("td", {}, facts.told), node("td", { class: "num" }, known(facts.psnr) ? `${write(facts.psnr)} dB` : "\u2013"), node("td", {}, facts.ended)));
  $("#runs").hidden = false;
  show(mine, Number($("#iteration").value));
}

function showEvidence(mine) {
  const { facts, id } = mine.state;
  $("#evidence").hidden = false;
  $("#evidence-text").textContent = facts.evidence ?? "";
  $("#candidates").replaceChildren(...facts.table.map((row) => node("tr", { class: row.chosen ? "chosen" : null }, node("th", { scope: "row" }, row.chosen ? `${row.name} (chosen)` : row.name), node("td", { class: "num" }, `${write(row.score)} dB`), node("td", { class: "num" }, write(row.seconds, 1)))));
  const name = mine.state.files[0];
  $("#adapted-download").replaceChildren(node("a", { href: `/api/jobs/${page.id}/${id}/files/${encodeURIComponent(name)}`, download: name }, `Download ${facts.adapted.name}`), ", a folder for proxmatch reconstruct.");
}

/** On a phone the result is below the panel; the slider is in it, and stays in sight. */
function goToStage(mine) {
  if (mine.clicked && matchMedia("(max-width: 52rem)").matches) $("#stage").scrollIntoView();
}

async function start(event) {
  if (!page.picture) return;
  const asked = wish();
  if (page.current?.state?.status === "done") page.before = page.current;
  await follow("reconstruct", asked, { picture: nice(page.picture.name), problem: asked.problem, iterations: asked.iterations }, event !== undefined);
}
async function cancel() {
  const job = page.busy;
  if (!job) return;
  job.gone = true;
  if (job.id) await ask(address(job, "").slice(0, -1), { method: "DELETE" }).catch((error) => fail(error.message));
}
async function adapt() {
  const body = { pictures: ticked(), side: Number($("#side").value), problem: $("#problem").value, options: options(), denoiser: $("#source").value, budget: Number($("#budget").value) };
  await follow("adapt", body, {});
}

// ---- the result

function shown(mine, name, k) {
  return name === "film" ? mine.frames[k] : mine.pictures[name];
}

function show(mine, k) {
  const { state } = mine;
  const { facts } = state;
  const frame = $("#compare");
  const [under, over] = $$("canvas", frame);
  const sides = { left: $(".left select", frame), right: $(".right select", frame) };
  for (const select of Object.values(sides)) {
    for (const option of $$("option", select)) option.disabled = option.value !== "film" && !mine.pictures[option.value];
    if (select.selectedOptions[0]?.disabled) select.value = "film";
  }
  $("#how").hidden = true;
  frame.hidden = false;
  frame.style.aspectRatio = `${facts.width} / ${facts.height}`;
  frame.style.width = `min(100%, 66vh * ${facts.width / facts.height}, ${Math.round(facts.width * 2.5)}px)`;
  for (const [canvas, select] of [[over, sides.left], [under, sides.right]]) {
    const image = shown(mine, select.value, k);
    [canvas.width, canvas.height] = [facts.width, facts.height];
    if (image) canvas.getContext("2d").drawImage(image, 0, 0, facts.width, facts.height);
    canvas.setAttribute("aria-label", `${select === sides.left ? "left" : "right"}: ${select.selectedOptions[0].textContent}`);
  }
  $("#film").hidden = false;
  $("#iteration").max = mine.frames.length - 1;
  $("#iteration").value = k;
  $("#iteration-value").textContent = `k = ${k}`;
  const value = (name) => state.curves[name]?.[k];
  const told = [["denoiser", `${label(facts.denoiser)}${facts.preview ? ", a first look" : ""}`], ["strength", facts.told]];
  if (known(value("psnr"))) told.push(["PSNR", `${write(value("psnr"))} dB`]);
  if (known(facts.start) && known(facts.psnr)) told.push(["gain over the start", `${write(facts.psnr - facts.start)} dB`]);
  if (known(facts.ssim)) told.push(["SSIM", write(facts.ssim, 3)]);
  told.push(["data misfit", write(value("fit"), 4)]);
  if (facts.tried) told.push(["tried", facts.tried.map((row) => `${row.name} ${write(row.score, 1)}`).join(", ")]);
  $("#facts").replaceChildren(...told.map(([name, text]) => node("div", {}, node("dt", {}, name), node("dd", {}, text))));
  draw(mine);
  $("#again").hidden = !facts.command;
  if (facts.command) {
    $("#download").href = address(mine, "files/proxmatch.zip");
    $("#command").textContent = facts.command;
    $("#python").textContent = facts.python;
  }
}

function draw(mine) {
  $("#charts").hidden = false;
  const specs = { psnr: ["PSNR, dB", 2, " dB"], fit: ["root mean square of Ax \u2212 y", 4, ""], mismatch: ["relative distance", 4, ""] };
  for (const [name, [title, digits, unit]] of Object.entries(specs)) {
    const series = [["this", mine], ["before", page.before]].flatMap(([method, run]) => {
      const values = run && run.state?.curves[name];
      if (!values || (method === "before" && run === mine)) return [];
      return [{ method, line: true, label: look(method).label, points: values.map((y, x) => ({ x, y })).filter(({ y }) => known(y)) }];
    });
    $(`#chart-${name}`).hidden = !series.some((s) => s.method === "this" && s.points.length);
    if ($(`#chart-${name}`).hidden) continue;
    chart($(`#chart-${name}`), { nearest: "x", x: { label: "iteration k", name: "iteration" }, y: { label: title, name: title, digits, unit, zero: name !== "psnr" }, series });
  }
}

function divide() {
  const share = $("#compare input").value;
  $("#compare .over").style.clipPath = `inset(0 ${100 - share}% 0 0)`;
  $("#compare .divider").style.left = `${share}%`;
}

let playing = 0;
function play() {
  const stop = () => { clearInterval(playing); playing = 0; $("#play").textContent = "▶"; $("#play").setAttribute("aria-label", "Play the iterations"); };
  if (playing) return stop();
  if (!page.current) return;
  $("#play").textContent = "❚❚";
  $("#play").setAttribute("aria-label", "Pause");
  let k = Number($("#iteration").value);
  if (k >= page.current.frames.length - 1) k = -1;
  playing = setInterval(() => {
    k += 1;
    if (k >= page.current.frames.length) return stop();
    show(page.current, k);
  }, 120);
}

// ---- begin

async function begin() {
  page.choices = await ask("/api/choices");
  page.id = (await ask("/api/page", { method: "POST" })).page;
  for (const name of page.choices.pictures) addPicture(name, name, () => node("img", { src: `/api/embedded/${name}`, alt: "" }));
  pick(page.choices.pictures[0], page.choices.pictures[0]);
  $("#problem").replaceChildren(...page.choices.problems.map((p) => node("option", { value: p.name, title: p.title }, p.name)));
  $("#problem").value = "deblurring";
  $("#iterations").max = page.choices.limits.iterations;
  showOptions();
  fillDenoisers();
  showStrength();
  $("#status").textContent = "Ready. Press Reconstruct.";
}

const drop = $("#drop");
for (const name of ["dragenter", "dragover"]) addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
for (const name of ["dragleave", "drop"]) addEventListener(name, (event) => { event.preventDefault(); drop.classList.remove("over"); });
addEventListener("drop", (event) => take([...event.dataTransfer.files]));
$("#file").addEventListener("change", async (event) => { await take([...event.target.files]); event.target.value = ""; });
$("#problem").addEventListener("change", showOptions);
$("#simulate").addEventListener("change", () => { $("#side").disabled = $("#simulate").value === "no"; });
$("#denoiser").addEventListener("change", () => { $("#usual").checked = true; showStrength(); });
$("#usual").addEventListener("change", showStrength);
let soon = 0;
$("#strength").addEventListener("input", () => {
  $("#usual").checked = false;
  showStrength();
  clearTimeout(soon);
  if (!page.current || !page.picture) return;
  soon = setTimeout(async () => {
    await cancel();
    while (page.busy) await new Promise((wait) => { setTimeout(wait, 50); });
    start();
  }, 250);
});
$("#run").addEventListener("click", start);
$("#cancel").addEventListener("click", cancel);
$("#adapt").addEventListener("click", adapt);
$("#play").addEventListener("click", play);
$("#panel").addEventListener("submit", (event) => event.preventDefault());
$("#iteration").addEventListener("input", () => show(page.current, Number($("#iteration").value)));
$("#compare input").addEventListener("input", divide);
for (const select of $$("#compare select")) select.addEventListener("change", () => show(page.current, Number($("#iteration").value)));
divide();
begin().catch((error) => fail(error.message));
