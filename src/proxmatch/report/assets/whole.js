/** Two views of a whole picture in one frame, with a divider between them. */
function compareWhole() {
  const frame = $("#compare-whole");
  if (!frame) return;
  const [under, over] = $$("canvas", frame);
  const range = $("input", frame);
  const sides = { left: $(".left select", frame), right: $(".right select", frame) };
  const names = Object.keys(DATA.whole);
  const state = { picture: names[0], view: "whole" };
  const items = () => $$(`#whole [data-picture="${state.picture}"] li`);
  const keys = items().map((item) => item.dataset.stage);
  [state.left, state.right] = [keys[0], keys.includes("adapted") ? "adapted" : keys[keys.length - 1]];
  const label = (item) => $(".name", item).textContent;
  const specs = [
    { name: "picture", label: "Picture", options: () => names.map((value) => ({ value, label: DATA.whole[value].label })) },
    { name: "view", label: "View", options: () => [{ value: "whole", label: "whole" }, { value: "detail", label: "detail" }] },
  ];
  let turn = 0;

  function divide() {
    over.style.clipPath = `inset(0 ${100 - range.value}% 0 0)`;
    $(".divider", frame).style.left = `${range.value}%`;
  }

  async function render() {
    const mine = ++turn;
    choose($("#whole-controls"), specs, state, render);
    for (const list of $$("#whole .stages")) list.hidden = list.dataset.picture !== state.picture;
    const { size, detail } = DATA.whole[state.picture];
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
  for (const item of $$("#whole .stages li")) {
    $("button", item).addEventListener("click", () => { state.right = item.dataset.stage; render(); });
  }
  divide();
  render();
}
compareWhole();
