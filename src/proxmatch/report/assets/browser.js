function browsePictures() {
  const holder = $("#browser-rows");
  if (!holder) return;
  const { entries, truth, degraded, frames } = PICTURES;
  const shared = { problem: DATA.story?.problem, image: DATA.story?.image };
  const slider = $("#iteration"), play = $("#play");
  const rows = ["first", "second"].map((name, place) => makeRow(name, place));
  let turn = 0;

  function makeRow(name, place) {
    const canvases = ["z", "x", "error", "still"].map(() => node("canvas", { role: "img" }));
    const captions = canvases.map(() => node("figcaption"));
    const spark = shape("svg", { class: "spark", role: "img" });
    const caption = node("figcaption");
    const panels = node("div", { class: "panels" },
      ...canvases.map((canvas, i) => node("figure", { class: `panel ${["z", "x", "error", "still"][i]}` }, canvas, captions[i])),
      node("figure", { class: "panel course" }, spark, caption));
    const controls = node("div", { class: "controls" });
    const root = node("div", { class: "pair", role: "group", "aria-label": `${name} denoiser` }, controls, panels);
    holder.append(root);
    const story = DATA.story;
    const home = story ? DATA.denoisers.findIndex((d) => d.family === story.family && d.source === story.source) : 0;
    const state = { denoiser: String(home), relaxation: story?.relaxation, method: place ? "mse" : story?.method, n: String(story?.n ?? 0), set: null };
    return { root, controls, canvases, captions, spark, caption, state, place };
  }

  const sharedSpecs = [
    { name: "problem", label: "Problem", options: () => plainOptions(entries.map((e) => e.problem)) },
    { name: "image", label: "Image", options: () => imageOptions(entries.filter((e) => e.problem === shared.problem)) },
  ];
  const here = () => entries.filter((e) => e.problem === shared.problem && e.image === shared.image);
  function specs(row) {
    const s = row.state;
    const tests = {
      denoiser: (e) => belongs(e, DATA.denoisers[s.denoiser]),
      relaxation: (e) => e.relaxation === s.relaxation,
      method: (e) => e.method === s.method,
      n: (e) => String(e.n) === s.n,
    };
    const left = (...names) => here().filter((e) => names.every((name) => tests[name](e)));
    return [
      { name: "denoiser", label: "Denoiser", options: () => denoiserOptions(here()) },
      { name: "relaxation", label: "Relaxation", options: () => relaxationOptions(left("denoiser")) },
      { name: "method", label: "Method", options: () => distinct(left("denoiser", "relaxation").map((e) => e.method))
        .sort((a, b) => methodOrder(a) - methodOrder(b)).map((value) => ({ value, label: look(value).label })) },
      { name: "n", label: "n", options: () => plainOptions(left("denoiser", "relaxation", "method").map((e) => e.n).sort((a, b) => a - b)) },
      { name: "set", label: "Set", options: () => plainOptions(left("denoiser", "relaxation", "method", "n").map((e) => e.set).sort((a, b) => a - b)) },
    ];
  }
  const entryOf = ({ state: s }) => here().find((e) => belongs(e, DATA.denoisers[s.denoiser]) && e.relaxation === s.relaxation &&
    e.method === s.method && String(e.n) === s.n && String(e.set) === s.set);

  function courseOf(entry, right) {
    if (!right) return Promise.resolve(null);
    entry.course ??= Promise.all(frames.map(async (_, k) => psnr(await pixels(entry.file, k, 1), right)));
    return entry.course;
  }

  async function render() {
    const mine = ++turn;
    const k = Number(slider.value);
    $("#iteration-value").textContent = `k = ${frames[k]}`;
    slider.setAttribute("aria-valuetext", `iteration ${frames[k]}`);
    choose($("#browser-controls"), sharedSpecs, shared, render);
    for (const row of rows) choose(row.controls, specs(row), row.state, render);
    const truePlace = truth[shared.image];
    const right = truePlace === undefined ? null : await pixels(truePlace);
    const rough = degraded[shared.problem]?.[shared.image];
    const drawn = await Promise.all(rows.map(async (row) => {
      const entry = entryOf(row);
      if (!entry) return null;
      return { entry, z: await pixels(entry.file, k, 0), x: await pixels(entry.file, k, 1), course: await courseOf(entry, right) };
    }));
    const still = rough === undefined ? null : await pixels(rough);
    if (mine !== turn) return;
    const all = drawn.filter(Boolean).flatMap((d) => d.course || []).filter(Number.isFinite);
    rows.forEach((row, i) => {
      row.root.hidden = !drawn[i] || (i > 0 && entries.length < 2);
      if (drawn[i]) paint(row, drawn[i], k, right, i ? still : right, all);
    });
  }

  function paint(row, { entry, z, x, course }, k, right, still, all) {
    const name = `${look(entry.method).label}${entry.n ? `, n = ${entry.n}` : ""}, iteration ${frames[k]}`;
    const [zc, xc, ec, sc] = row.canvases;
    const letter = (symbol) => [symbol, node("sub", {}, "k")];
    const caption = (i, title, value) => row.captions[i].replaceChildren(node("span", {}, ...title), ...(value ? [node("b", {}, value)] : []));
    show(zc, z, `z_k: ${name}`);
    caption(0, letter("z"), right && decibels(psnr(z, right)));
    show(xc, x, `x_k: ${name}`);
    caption(1, letter("x"), right && decibels(psnr(x, right)));
    ec.closest("figure").hidden = !right;
    if (right) {
      const map = errorMap(x, right);
      show(ec, map, `error map of x_k: ${name}`);
      caption(2, ["error"], `mean ${meanError(x, right).toFixed(3)}`);
    }
    sc.closest("figure").hidden = !still;
    if (still) {
      show(sc, still, row.place ? `degraded, image ${shared.image}` : `truth, image ${shared.image}`);
      caption(3, [row.place ? "degraded" : "truth"], row.place && right ? decibels(psnr(still, right)) : "");
    }
    row.spark.closest("figure").hidden = !course;
    if (course) sparkline(row, course, k, all, entry.method);
  }

  function meanError(data, right) {
    let sum = 0;
    for (let i = 0; i < data.data.length; i += 4) for (let c = 0; c < 3; c++) sum += Math.abs(data.data[i + c] - right.data[i + c]);
    return sum / (0.75 * data.data.length) / 255;
  }

  function sparkline(row, course, k, all, method) {
    const { spark } = row;
    const width = spark.clientWidth || 160, height = spark.clientHeight || 160;
    const low = Math.min(...all), high = Math.max(...all), span = high - low || 1;
    const x = (i) => 12 + (frames[i] / (frames[frames.length - 1] || 1)) * (width - 24);
    const y = (v) => height - 26 - ((Math.min(v, high) - low) / span) * (height - 56);
    const text = (at, where, words, anchor) => shape("text", { x: at, y: where, "text-anchor": anchor, "font-size": 12, fill: "var(--soft)" }, words);
    spark.replaceChildren(
      shape("path", { d: path(course.map((v, i) => [x(i), y(v)])), fill: "none", stroke: color(method), "stroke-width": 2, "stroke-dasharray": look(method).dash || null }),
      mark(method, x(k), y(course[k]), 4.5),
      text(12, 18, `${write(high, 1)} dB`, "start"), text(12, height - 8, `${write(low, 1)} dB`, "start"),
      text(width - 12, height - 8, `k = ${frames[frames.length - 1]}`, "end"));
    spark.setAttribute("aria-label", `PSNR of x_k from ${write(course[0], 1)} to ${write(course[course.length - 1], 1)} dB`);
    row.caption.replaceChildren(node("span", {}, "PSNR of ", "x", node("sub", {}, "k")), node("b", {}, `best ${write(Math.max(...course), 1)} dB`));
  }

  let timer = null;
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶";
    play.setAttribute("aria-label", "Play the iterations");
  }
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) === frames.length - 1) slider.value = 0;
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
    render();
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      render();
      if (Number(slider.value) === frames.length - 1) stop();
    }, 350);
  });
  slider.addEventListener("input", () => { stop(); render(); });
  addEventListener("resize", render);
  render();
}

browsePictures();
