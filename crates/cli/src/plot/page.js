"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const chart = document.getElementById("chart");
  const line = document.getElementById("operation");
  const cursors = chart.querySelectorAll(".cursor");
  const readouts = chart.querySelectorAll(".readout");
  const heads = Array.from(readouts, (readout) => readout.textContent);
  const tip = document.getElementById("tip");
  const hint = line.textContent;
  let shown = -1;
  let picked = [];

  const figure = (bytes) => (bytes / data.unit_bytes).toFixed(1);

  function show(index) {
    shown = index;
    const at = data.at[index];
    const x = (at / data.operations) * data.width;
    data.figures.forEach((figures, panel) => {
      cursors[panel].setAttribute("x1", x);
      cursors[panel].setAttribute("x2", x);
      cursors[panel].setAttribute("visibility", "visible");
      readouts[panel].textContent =
        data.names.map((name, i) => name + " " + figure(figures[i][index])).join(", ") +
        " " + data.unit;
    });
    const code = document.createElement("code");
    code.textContent = data.text[index];
    line.replaceChildren("operation " + at.toLocaleString("en") + ": ", code);
  }

  function hide() {
    shown = -1;
    pick(null);
    cursors.forEach((cursor) => cursor.setAttribute("visibility", "hidden"));
    readouts.forEach((readout, panel) => { readout.textContent = heads[panel]; });
    line.textContent = hint;
  }

  /** Outlines a block in every panel and tells of it beside the pointer; null for none. */
  function pick(block, event) {
    if (block === null || picked[0]?.dataset.b !== block) {
      picked.forEach((part) => part.classList.remove("picked"));
      picked = block === null ? [] : [...chart.querySelectorAll(`rect[data-b="${block}"]`)];
      picked.forEach((part) => part.classList.add("picked"));
    }
    tip.hidden = block === null;
    if (tip.hidden) return;
    tip.textContent = data.blocks[block];
    const { width, height } = tip.getBoundingClientRect();
    const beside = (at, size, room) => (at + 16 + size > room ? Math.max(0, at - 16 - size) : at + 16);
    tip.style.left = beside(event.clientX, width, innerWidth) + "px";
    tip.style.top = beside(event.clientY, height, innerHeight) + "px";
  }

  /** The last operation that is not behind this one. */
  function place(operation) {
    let low = 0;
    let high = data.at.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (data.at[middle] <= operation) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  if (data.at.length === 0) return;
  chart.addEventListener("pointermove", (event) => {
    pick(event.target.dataset?.b ?? null, event);
    const point = new DOMPoint(event.clientX, event.clientY);
    const x = point.matrixTransform(chart.getScreenCTM().inverse()).x;
    const left = data.left.find((left) => x >= left - 8 && x <= left + data.width + 8);
    if (left === undefined) return hide();
    show(place(Math.round(((x - left) / data.width) * data.operations)));
  });
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50 };
    const step = steps[event.key];
    if (event.key === "Escape") return hide();
    if (step === undefined) return;
    event.preventDefault();
    show(Math.min(data.at.length - 1, Math.max(0, shown + step)));
  });
})();
