"use strict";
document.documentElement.classList.add("js");

const DATA = JSON.parse(document.getElementById("numbers").textContent);
const SVG = "http://www.w3.org/2000/svg";
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const distinct = (values) => [...new Set(values)];
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const write = (value, digits = 2) => (known(value) ? value.toFixed(digits).replace("-", "\u2212") : "\u2013");

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const node = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const shape = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const look = (method) => DATA.methods[method];
const color = (method) => (look(method).color === "ink" ? "currentColor" : look(method).color);

/** Rows without a family or source, such as baselines, belong to every denoiser. */
function belongs(item, denoiser) {
  return ["family", "source"].every((name) => item[name] === "" || item[name] === denoiser[name]);
}
const denoiserOptions = (items) =>
  DATA.denoisers
    .map((denoiser, place) => ({ denoiser, value: String(place), label: denoiser.label }))
    .filter(({ denoiser }) => items.some((item) => belongs(item, denoiser)));
const relaxationOptions = (items) =>
  DATA.relaxations
    .filter(({ name }) => items.some((item) => item.relaxation === name))
    .map(({ name, label }) => ({ value: name, label }));
const plainOptions = (values) => distinct(values).map((value) => ({ value: String(value), label: String(value) }));

const MARKS = {
  circle: (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
  square: (x, y, r) => `M${x - r * 0.9},${y - r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
  diamond: (x, y, r) => `M${x},${y - r * 1.25}l${r * 1.25},${r * 1.25}l${-r * 1.25},${r * 1.25}l${-r * 1.25},${-r * 1.25}z`,
  triangle: (x, y, r) => `M${x},${y - r * 1.2}l${r * 1.15},${r * 2.1}h${-r * 2.3}z`,
  cross: (x, y, r) => `M${x - r},${y - r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}`,
};
function mark(method, x, y, r, extra = {}) {
  const { marker, filled } = look(method);
  const d = MARKS[marker](x, y, r);
  const inside = filled && marker !== "cross" ? color(method) : marker === "cross" ? "none" : "var(--paper)";
  return shape("path", { d, fill: inside, stroke: color(method), "stroke-width": 1.6, ...extra });
}
function swatch(method) {
  const dash = look(method).dash || null;
  const line = shape("line", { x1: 0, y1: 6, x2: 22, y2: 6, stroke: color(method), "stroke-width": 2, "stroke-dasharray": dash });
  return shape("svg", { class: "swatch", width: 22, height: 12, "aria-hidden": "true" }, line, mark(method, 11, 6, 3.4));
}

let radios = 0;
function segments(name, label, offered, value, picked) {
  const group = `choice-${++radios}`;
  const buttons = offered.map((option) =>
    node("label", {},
      node("input", { type: "radio", name: group, value: option.value, checked: option.value === value ? "" : null, onchange: () => picked(option.value) }),
      node("span", {}, option.label)));
  return node("fieldset", { class: "control", "data-name": name }, node("legend", {}, label), node("div", { class: "segments" }, ...buttons));
}
function dropdown(name, label, offered, value, picked) {
  const id = `choice-${++radios}`;
  const options = offered.map((option) => node("option", { value: option.value, selected: option.value === value ? "" : null }, option.label));
  const select = node("select", { id, onchange: (event) => picked(event.target.value) }, ...options);
  return node("div", { class: "control", "data-name": name }, node("label", { for: id }, label), select);
}

/**
 * Controls whose options may depend on the ones before them. `state` always ends up with a value
 * that is on offer; a control with one option is not shown.
 */
function choose(container, specs, state, changed) {
  const focused = container.contains(document.activeElement)
    ? document.activeElement.closest("[data-name]").dataset.name : null;
  container.replaceChildren();
  for (const { name, label, options } of specs) {
    const offered = options(state);
    if (!offered.some((option) => option.value === state[name])) state[name] = offered.length ? offered[0].value : null;
    if (offered.length < 2) continue;
    const short = offered.length <= 5 && offered.reduce((sum, option) => sum + option.label.length + 3, 0) <= 46;
    const picked = (value) => { state[name] = value; changed(); };
    container.append((short ? segments : dropdown)(name, label, offered, state[name], picked));
  }
  if (focused) $(`[data-name="${focused}"] :is(select, input:checked)`, container)?.focus();
}

for (const section of $$("main > section")) {
  const link = $(`.contents a[href="#${section.id}"]`);
  if (!link || !("IntersectionObserver" in window)) continue;
  new IntersectionObserver(([entry]) => {
    if (!entry.isIntersecting) return link.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    const list = link.closest("ol");
    list.scrollLeft = link.offsetLeft - list.offsetLeft - list.clientWidth / 3;
  }, { rootMargin: "-45% 0px -54% 0px" }).observe(section);
}

let opened = [];
addEventListener("beforeprint", () => {
  opened = $$(".printed:not([open])");
  opened.forEach((details) => { details.open = true; });
});
addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
