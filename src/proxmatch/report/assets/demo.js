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
    for (const [name, curves] of Object.entries(DATA.curves)) {
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

drawCurves();
