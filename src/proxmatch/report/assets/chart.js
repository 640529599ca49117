/** Round values from low to high, about so many. */
function ticks(low, high, about) {
  const raw = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");

/**
 * Draw a chart and make it answer to pointer and keyboard.
 *
 * spec.series: {method, label, points: [{x, y, low, high, note}], dots: [{x, y}], line, flat}; a flat
 * series is one value at every x. spec.nearest: "x" reads all series at one x, "point" one point.
 */
function chart(figure, spec) {
  const root = $(".plot", figure);
  const redraw = () => drawChart(root, spec, figure);
  root.redraw = redraw;
  if (!root.watched && "ResizeObserver" in window) {
    let width = root.clientWidth;
    root.watched = new ResizeObserver(() => {
      if (root.clientWidth !== width) { width = root.clientWidth; root.redraw(); }
    });
    root.watched.observe(root);
  }
  redraw();
  $(".values", figure).replaceChildren(valuesTable(spec));
}

function drawChart(root, spec, figure) {
  const series = spec.series.filter((s) => s.points.length);
  root.replaceChildren();
  if (!series.length) return root.append(node("p", { class: "empty" }, "Nothing measured for this choice."));
  const width = Math.max(240, root.clientWidth);
  const height = Math.round(Math.min(350, Math.max(270, width * 0.66)));
  const box = { left: 40, right: width - 10, top: 24, bottom: height - 42 };
  const every = series.flatMap((s) => [...s.points, ...(s.dots || [])]);
  const xs = distinct(series.filter((s) => !s.flat).flatMap((s) => s.points.map((p) => p.x))).sort((a, b) => a - b);
  const bend = spec.x.log ? Math.log : (v) => v;
  const xLow = spec.x.low ?? Math.min(...xs), xHigh = spec.x.high ?? Math.max(...xs);
  const pad = spec.x.pad ?? 0;
  const x = (v) => box.left + pad + (xs.length && bend(xHigh) > bend(xLow) ? (bend(v) - bend(xLow)) / (bend(xHigh) - bend(xLow)) : 0.5) * (box.right - box.left - 2 * pad);
  const ys = every.flatMap((p) => [p.y, p.low, p.high]).filter(known);
  let yLow = Math.min(...ys), yHigh = Math.max(...ys);
  const room = 0.06 * (yHigh - yLow) || 1;
  yLow = spec.y.zero ? 0 : yLow - room;
  yHigh += room;
  const y = (v) => box.bottom - ((v - yLow) / (yHigh - yLow)) * (box.bottom - box.top);

  const back = shape("g");
  for (const v of ticks(yLow, yHigh, 6)) {
    back.append(shape("line", { class: "grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }));
    back.append(shape("text", { x: box.left - 8, y: y(v) + 4, "text-anchor": "end" }, String(v).replace("-", "\u2212")));
  }
  back.append(shape("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  for (const v of spec.x.ticks ?? ticks(xLow, xHigh, Math.min(8, width / 60))) {
    back.append(shape("line", { class: "axis", x1: x(v), x2: x(v), y1: box.bottom, y2: box.bottom + 4 }));
    back.append(shape("text", { x: x(v), y: box.bottom + 18, "text-anchor": "middle" }, String(v)));
  }
  back.append(shape("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, spec.x.label));
  back.append(shape("text", { x: 0, y: 12 }, spec.y.label));

  const front = shape("g");
  for (const s of series) {
    const ink = color(s.method), dash = look(s.method).dash || null;
    if (s.flat) {
      const level = y(s.points[0].y);
      front.append(shape("line", { x1: box.left, x2: box.right, y1: level, y2: level, stroke: ink, "stroke-width": 1.6, "stroke-dasharray": dash || "9 3" }));
      front.append(mark(s.method, box.right - 4, level, 3.4));
      continue;
    }
    const banded = s.points.filter((p) => known(p.low) && known(p.high));
    if (banded.length > 1 && banded.some((p) => p.high > p.low)) {
      const edge = [...banded.map((p) => [x(p.x), y(p.high)]), ...banded.reverse().map((p) => [x(p.x), y(p.low)])];
      front.append(shape("path", { d: path(edge) + "Z", fill: ink, "fill-opacity": 0.13 }));
    }
    for (const dot of s.dots || []) front.append(shape("circle", { cx: x(dot.x), cy: y(dot.y), r: 2, fill: ink, "fill-opacity": 0.55 }));
    if (s.line) front.append(shape("path", { d: path(s.points.map((p) => [x(p.x), y(p.y)])), fill: "none", stroke: ink, "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": dash }));
    const sparse = s.points.length <= 12 || !s.line;
    s.points.filter((_, i) => sparse || i % 10 === 0).forEach((p) => front.append(mark(s.method, x(p.x), y(p.y), s.line ? 3.6 : 4.2)));
  }

  const over = shape("g", { "aria-hidden": "true" });
  const tip = node("div", { class: "tip", role: "status", hidden: "" });
  const picture = shape("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img",
    "aria-label": `${$("h3", figure).textContent}: ${series.map((s) => s.label).join(", ")}. Arrow keys read the values.`,
  }, back, front, over);
  root.append(picture, tip);

  const stops = spec.nearest === "x"
    ? xs.map((v) => ({ at: [x(v), null], ...readingAt(series, v, spec) }))
    : series.flatMap((s) => s.points.map((p) => ({ at: [x(p.x), y(p.y)], head: s.label, rows: readingOf(p, spec), marks: [[s.method, p.x, p.y]] })))
      .sort((a, b) => a.at[0] - b.at[0]);
  let current = -1;
  function read(index) {
    current = index;
    over.replaceChildren();
    tip.hidden = index < 0;
    if (index < 0) return;
    const { at, head, rows, marks } = stops[index];
    if (at[1] === null) over.append(shape("line", { class: "cross", x1: at[0], x2: at[0], y1: box.top, y2: box.bottom }));
    for (const [method, px, py] of marks) over.append(mark(method, px === null ? at[0] : x(px), y(py), at[1] === null ? 4.6 : 7, at[1] === null ? {} : { fill: "none" }));
    const lines = rows.map(([method, name, value]) => node("tr", {}, node("td", {}, ...(method ? [swatch(method)] : []), name), node("td", {}, value)));
    tip.replaceChildren(node("strong", {}, head), node("table", {}, node("tbody", {}, ...lines)));
    const wide = tip.offsetWidth;
    const left = at[0] + 14 + wide > width ? Math.max(0, at[0] - 14 - wide) : at[0] + 14;
    tip.style.left = `${left}px`;
    tip.style.top = `${at[1] === null ? box.top : Math.min(Math.max(0, at[1] - tip.offsetHeight / 2), height - tip.offsetHeight)}px`;
  }
  picture.addEventListener("pointermove", (event) => {
    const edge = picture.getBoundingClientRect();
    const [px, py] = [event.clientX - edge.left, event.clientY - edge.top];
    const far = ({ at }) => (at[0] - px) ** 2 + (at[1] === null ? 0 : (at[1] - py) ** 2);
    let best = 0;
    stops.forEach((stop, i) => { if (far(stop) < far(stops[best])) best = i; });
    if (stops.length && best !== current) read(best);
  });
  picture.addEventListener("pointerleave", () => read(-1));
  picture.addEventListener("blur", () => read(-1));
  picture.addEventListener("keydown", (event) => {
    const last = stops.length - 1;
    const next = { ArrowRight: Math.min(last, current + 1), ArrowLeft: current < 0 ? last : Math.max(0, current - 1), Home: 0, End: last, Escape: -1 }[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    read(next);
  });
  return picture;
}

function readingAt(series, v, spec) {
  const found = series.map((s) => [s, s.flat ? s.points[0] : s.points.find((p) => p.x === v)]).filter(([, p]) => p);
  found.sort((a, b) => b[1].y - a[1].y);
  return {
    head: `${spec.x.name} ${v}`,
    rows: found.map(([s, p]) => [s.method, s.label, write(p.y, spec.y.digits) + spec.y.unit]),
    marks: found.map(([s, p]) => [s.method, null, p.y]),
  };
}

const readingOf = (p, spec) => [
  ...(p.note ? [[null, p.note, ""]] : []),
  [null, spec.x.name, write(p.x, 1) + spec.x.unit],
  [null, spec.y.name, write(p.y, spec.y.digits) + spec.y.unit],
];

/** What a chart shows, for those who do not see it. */
function valuesTable(spec) {
  const series = spec.series.filter((s) => s.points.length);
  const row = (cells, kind = "td") => node("tr", {}, ...cells.map((cell, i) => node(i ? kind : "th", { scope: i ? (kind === "th" ? "col" : null) : kind === "th" ? "col" : "row" }, cell)));
  if (spec.nearest === "point") {
    const head = row(["method", "", spec.x.label, spec.y.name + spec.y.unit], "th");
    const lines = series.flatMap((s) => s.points.map((p) => row([s.label, p.note || "", write(p.x, 1), write(p.y, spec.y.digits)])));
    return node("table", {}, node("thead", {}, head), node("tbody", {}, ...lines));
  }
  const xs = distinct(series.filter((s) => !s.flat).flatMap((s) => s.points.map((p) => p.x))).sort((a, b) => a - b);
  const value = (s, v) => write((s.flat ? s.points[0] : s.points.find((p) => p.x === v))?.y, spec.y.digits);
  const lines = series.map((s) => row([s.label, ...xs.map((v) => value(s, v))]));
  return node("table", {}, node("thead", {}, row([spec.x.label, ...xs.map(String)], "th")), node("tbody", {}, ...lines));
}
