"use strict";
// The report is readable without this script, which adds navigation by keyboard and the choice of a layout.
(() => {
  const hunks = [...document.querySelectorAll(".hunk")];
  const button = document.getElementById("layout");
  let current = -1;

  const move = (step) => {
    if (!hunks.length) return;
    current = Math.min(Math.max(current + step, 0), hunks.length - 1);
    hunks[current].closest("details")?.setAttribute("open", "");
    hunks[current].focus({ preventScroll: true });
    hunks[current].scrollIntoView({ block: "center" });
  };

  const toggle = () => {
    const stacked = document.body.classList.toggle("stacked");
    button.setAttribute("aria-pressed", String(stacked));
  };

  button.hidden = false;
  button.addEventListener("click", toggle);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j" || event.key === "n") move(1);
    else if (event.key === "k" || event.key === "p") move(-1);
    else if (event.key === "s") toggle();
  });
})();
