function drawCurves() {
  const section = $("#curves");
  if (!section) return;
  const items = [...DATA.cells, ...DATA.curves];
  const state = {};
  const hidden = new Set(Object.keys(DATA.methods).filter((method) => look(method).control));
  const at = (names) => (item) => names.every((name) =>
    name === "denoiser" ? belongs(item, DATA.denoisers[state.denoiser]) : item[name] === state[name]);
  const chosen = ["problem", "denoiser", "relaxation"];
  const shotsOf = (list) => distinct(list.filter(at(chosen)).map((item) => item.n)).filter(Boolean).sort((a, b) => a - b);
  const specs = [
    { name: "problem", label: "Problem", options: () => plainOptions(items.map((item) => item.problem)) },
    { name: "denoiser", label: "Denoiser", options: () => denoiserOptions(items.filter(at(["problem"]))) },
    { name: "relaxation", label: "Relaxation", options: () => relaxationOptions(items.filter(at(["problem", "denoiser"]))) },
    { name: "n", label: "Images, for the iterations", options: () => plainOptions(shotsOf(DATA.curves)) },
  ];
  const shots = distinct(DATA.curves.map((curve) => curve.n)).filter(Boolean).sort((a, b) => a - b);
  state.n = shots.length ? String(shots[Math.min(1, shots.length - 1)]) : null;

  function legend(cells, curves) {
    const there = Object.keys(DATA.methods).filter((method) => [...cells, ...curves].some((item) => item.method === method));
    const focused = document.activeElement?.dataset?.method;
    $("#legend").replaceChildren(...there.map((method) => node("button", {
      type: "button", "data-method": method, "aria-pressed": String(!hidden.has(method)),
      onclick: () => { if (!hidden.delete(method)) hidden.add(method); render(); },
    }, swatch(method), look(method).label)));
    if (focused !== undefined) $$("#legend button").find((button) => button.dataset.method === focused)?.focus();
    return there.filter((method) => !hidden.has(method));
  }

  /** A line over n for what is adapted, a level for what is not. */
  function overShots(cells, methods, name, place) {
    return methods.flatMap((method) => {
      const mine = cells.filter((cell) => cell.method === method && known(cell[name])).sort((a, b) => a.n - b.n);
      const series = { method, label: look(method).label, line: true };
      const level = mine.find((cell) => cell.n === 0);
      if (mine.length === 1 && (level || mine[0].family === "")) return [{ ...series, flat: true, points: [{ x: null, y: mine[0][name] }] }];
      const adapted = mine.filter((cell) => cell.n > 0);
      return [{
        ...series,
        points: adapted.map((cell) => ({ x: cell.n, y: cell[name] })),
        dots: adapted.flatMap((cell) => (cell.sets.length > 1 ? cell.sets : []).map((set) => ({ x: cell.n, y: set[place] }))).filter((dot) => known(dot.y)),
      }];
    });
  }

  function render() {
    choose($("#curve-controls"), specs, state, render);
    const cells = DATA.cells.filter(at(chosen)), curves = DATA.curves.filter(at(chosen));
    const methods = legend(cells, curves);
    const shots = shotsOf(DATA.cells);
    const lone = (curve) => curve.family === "" && distinct(curves.filter((c) => c.method === curve.method).map((c) => c.n)).length === 1;
    const overN = { label: "number of adaptation images n", name: "n =", log: true, ticks: shots, pad: 24 };
    chart($("#chart-iterations"), {
      nearest: "x",
      x: { label: "iteration k", name: "iteration" },
      y: { label: "PSNR, dB", digits: 2, unit: " dB" },
      series: methods.flatMap((method) => curves.filter((c) => c.method === method && (c.n === 0 || String(c.n) === state.n || lone(c))).map((c) => ({
        method, line: true, label: look(method).label,
        points: c.iterations.map((k, i) => ({ x: k, y: c.psnr[i], low: c.low[i], high: c.high[i] })).filter((p) => known(p.y)),
      }))),
    });
    chart($("#chart-shots"), { nearest: "x", x: overN, y: { label: "PSNR, dB", digits: 2, unit: " dB" }, series: overShots(cells, methods, "psnr", 0) });
    chart($("#chart-gaps"), { nearest: "x", x: overN, y: { label: "gap, %", digits: 1, unit: " %", zero: true }, series: overShots(cells, methods, "gap", 1) });
    chart($("#chart-scatter"), {
      nearest: "point",
      x: { label: "gap, %", name: "gap", unit: " %", low: 0, pad: 8 },
      y: { label: "PSNR, dB", name: "PSNR", digits: 2, unit: " dB" },
      series: methods.map((method) => ({
        method, line: false, label: look(method).label,
        points: cells.filter((cell) => cell.method === method).flatMap((cell) => cell.sets
          .map(([psnr, gap], set) => ({ x: gap, y: psnr, note: cell.n ? `n = ${cell.n}, set ${set + 1} of ${cell.sets.length}` : "" })))
          .filter((p) => known(p.x) && known(p.y)),
      })),
    });
  }
  render();
}

drawCurves();
