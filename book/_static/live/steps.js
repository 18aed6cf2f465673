// Goes through a moving picture step by step, forward and back: each step has
// a moment before its messages leave and one when they have arrived. The
// picture says how long a step is: <div data-step="1.8">, in seconds. Its box
// stops it without this script.
(() => {
  const BEFORE = 0.02, ARRIVED = 0.85; // of a step
  const welcome = matchMedia("(prefers-reduced-motion: no-preference)");

  /** Stops a picture at its next moment, or at the last one. */
  function go(picture, way) {
    // A ticked box stops it; where motion is unwelcome, it lets it run.
    picture.querySelector("input").checked = welcome.matches;
    const moving = picture.getAnimations({ subtree: true });
    const { duration } = moving[0].effect.getComputedTiming();
    const step = 1000 * picture.dataset.step;
    const moments = [];
    for (let start = 0; start + step <= duration; start += step) {
      moments.push(start + BEFORE * step, start + ARRIVED * step);
    }
    const now = moving[0].currentTime % duration;
    const next = way > 0
      ? moments.find((moment) => moment > now + 1) ?? moments[0]
      : moments.findLast((moment) => moment < now - 1) ?? moments.at(-1);
    moving.forEach((animation) => { animation.currentTime = next; });
  }

  // The buttons stand beside what a figure shows, which changes.
  document.querySelectorAll(".live-steps").forEach((row) => {
    const pictures = row.previousElementSibling;
    const inside = () => pictures.querySelector("[data-step]");
    const [back, forth] = row.children;
    back.onclick = () => go(inside(), -1);
    forth.onclick = () => go(inside(), 1);
    const offer = () => { row.hidden = !inside(); };
    new MutationObserver(offer).observe(pictures, { childList: true });
  });
})();
