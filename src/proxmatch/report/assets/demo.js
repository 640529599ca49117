/** Two of the pictures in one frame, with a divider between them. */
function compare() {
  const frame = $("#compare");
  const [under, over] = $$("canvas", frame);
  const range = $("input", frame);
  const sides = { left: $(".left select", frame), right: $(".right select", frame) };
  const names = Object.keys(DATA.pictures);
  const state = { picture: names[0], view: "whole", left: "measured", right: "adapted" };
  const items = () => $$(`.stages[data-picture="${state.picture}"] li`);
  const label = (item) => $(".name", item).textContent;
  const specs = [
    { name: "picture", label: "Picture", options: () => names.map((value) => ({ value, label: DATA.pictures[value].label })) },
    { name: "view", label: "View", options: () => [{ value: "whole", label: "whole" }, { value: "detail", label: "detail" }] },
  ];
  let turn = 0;

  function divide() {
    over.style.clipPath = `inset(0 ${100 - range.value}% 0 0)`;
    $(".divider", frame).style.left = `${range.value}%`;
  }

  async function render() {
    const mine = ++turn;
    choose($("#story-controls"), specs, state, render);
    for (const list of $$(".stages")) list.hidden = list.dataset.picture !== state.picture;
    const { size, detail } = DATA.pictures[state.picture];
    const [top, left, side] = detail;
    const close = state.view === "detail";
    const box = close ? [left, top, side, side] : [0, 0, ...size];
    const found = items();
    const images = await Promise.all([state.left, state.right].map(async (key) => {
      const image = $("img", found.find((item) => item.dataset.stage === key));
      await image.decode();
      return image;
    }));
    if (mine !== turn) return;
    frame.hidden = false;
    frame.style.aspectRatio = `${box[2]} / ${box[3]}`;
    frame.classList.toggle("close", close);
    [over, under].forEach((canvas, i) => {
      [canvas.width, canvas.height] = box.slice(2);
      canvas.getContext("2d").drawImage(images[i], ...box, 0, 0, box[2], box[3]);
    });
    for (const [side_, select] of Object.entries(sides)) {
      const options = found.map((item) => node("option", { value: item.dataset.stage, selected: item.dataset.stage === state[side_] ? "" : null }, label(item)));
      select.replaceChildren(...options);
      const shown = label(found.find((item) => item.dataset.stage === state[side_]));
      (side_ === "left" ? over : under).setAttribute("aria-label", `${side_}: ${shown}`);
    }
    for (const item of found) $("button", item).setAttribute("aria-pressed", item.dataset.stage === state.right);
  }

  range.addEventListener("input", divide);
  for (const [side, select] of Object.entries(sides)) {
    select.addEventListener("change", () => { state[side] = select.value; render(); });
  }
  for (const item of $$(".stages li")) {
    $("button", item).addEventListener("click", () => { state.right = item.dataset.stage; render(); });
  }
  divide();
  render();
}

function drawCurves() {
  const hidden = new Set();
  function render() {
    const methods = Object.keys(DATA.methods);
    const focused = document.activeElement?.dataset?.method;
    $("#legend").replaceChildren(...methods.map((method) => node("button", {
      type: "button", "data-method": method, "aria-pressed": String(!hidden.has(method)),
      onclick: () => { if (!hidden.delete(method)) hidden.add(method); render(); },
    }, swatch(method), look(method).label)));
    if (focused) $(`#legend [data-method="${focused}"]`).focus();
    for (const [name, { curves }] of Object.entries(DATA.pictures)) {
      chart($(`#chart-${name}`), {
        nearest: "x",
        x: { label: "iteration k", name: "iteration" },
        y: { label: "PSNR, dB", digits: 2, unit: " dB" },
        series: methods.filter((method) => !hidden.has(method)).map((method) => ({
          method, line: true, label: look(method).label,
          flat: curves[method].length === 1,
          points: curves[method].map((y, x) => ({ x, y })),
        })),
      });
    }
  }
  render();
}

compare();
drawCurves();
