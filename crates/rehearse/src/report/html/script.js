"use strict";
for (const figure of document.querySelectorAll("figure.chart")) {
  const svg = figure.querySelector("svg");
  const readout = figure.querySelector(".readout");
  const usual = readout.textContent;
  svg.addEventListener("pointermove", (event) => {
    const step = event.target.closest("g");
    if (!step) {
      readout.textContent = usual;
      return;
    }
    const seconds = Number(svg.dataset.from) + Number(svg.dataset.step) * Number(step.dataset.i);
    const time = new Date(seconds * 1000).toISOString();
    readout.textContent = `${time}: ${step.dataset.a} allowed, ${step.dataset.d} denied`;
  });
  svg.addEventListener("pointerleave", () => {
    readout.textContent = usual;
  });
}
