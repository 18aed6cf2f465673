// Predictions that wait: what answers a Predict box is folded until the reader
// has put down a number or a choice. It stays in this browser. Without this
// script, and on paper, nothing is folded.
(() => {
  const KEY = "dpkit-prediction "; // and the name of a box, or ALL
  const ALL = "*";
  const DRAFT = "dpkit-draft "; // and the name of a box: a guess not yet sent
  const page = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const forms = () => all("form.predict");
  const say = (element, text) => Object.assign(element, { textContent: text });

  /** What the fields of a box held, then the choice. ALL: fold nothing. */
  const kept = (box) => JSON.parse(dpkitKept.get(KEY + box));
  const keep = (box, said) => dpkitKept.set(KEY + box, JSON.stringify(said));
  const forget = (box) => {
    dpkitKept.forget(KEY + box);
    dpkitKept.forget(DRAFT + box);
  };
  const draft = (box) => JSON.parse(dpkitKept.get(DRAFT + box));
  const boxes = (start) => dpkitKept.keys()
    .filter((key) => key.startsWith(start)).map((key) => key.slice(start.length));

  const open = (box) => {
    document.forms[box].classList.add("predict-open");
    all(`.predict-fold[data-box="${box}"]`)
      .forEach((fold) => fold.removeAttribute("hidden"));
  };
  const foldIn = (form) => {
    if (kept(ALL) || kept(form.name)) return open(form.name);
    form.classList.remove("predict-open");
    all(`.predict-fold[data-box="${form.name}"]`)
      .forEach((fold) => fold.setAttribute("hidden", "until-found")); // by Ctrl + F
  };

  // 1,024 and 0,5 and 3/11 and 2e-7 are numbers.
  function number(text, unit) {
    const [above, below = 1] = text.replace("−", "-").replace(unit, "")
      .replace(/^([-+]?0),/, "$1.").replace(/,(?=\d{3})|\s/g, "")
      .replace(",", ".").split("/");
    return above / below;
  }

  /** Whether a number counts as the one that is written: it rounds to it, or
   * differs by a fiftieth at most (as in predict_boxes.py). */
  function isNear(said, written) {
    const [mantissa, exponent = 0] = written.replaceAll(",", "").split("e");
    const places = mantissa.split(".")[1]?.length;
    const half = places ? 0.5 * 10 ** (exponent - places) : 0;
    const value = number(written, "");
    return Math.abs(said - value) <= 1.001 * Math.max(half, Math.abs(value) / 50);
  }

  /** The usual error with a unit that would make a number so far off, or "". */
  function unitError(said, found, unit) {
    const isOff = (factor) =>
      Math.abs(Math.abs(Math.log(said / found)) - Math.log(factor)) < 0.05;
    const asked = unit && `, and the box asks for ${unit}`;
    if (unit === "%") return isOff(100) ? "A factor of 100 is usually per cent: a tenth is 10 %." : "";
    const factor = [1e3, 1e6, 1e9].find(isOff);
    if (factor) return `A factor of ${factor.toLocaleString("en")} is usually a unit${asked}.`;
    return isOff(8) && /^([kMG]?B|bytes|[mµ]?s)$/.test(unit) ?
      "A factor of 8 is usually a unit: a byte has 8 bits." : "";
  }

  /** How far off a number is, in words, and as a factor. */
  function miss(said, written, unit) {
    if (isNear(said, written)) return ["right", 1];
    const found = number(written, "");
    const way = said > found ? "too high" : "too low";
    const factor = Math.max(said / found, found / said);
    const apart = +Math.abs(said - found).toPrecision(3);
    if (unit === "%") return [`${apart} points ${way}`];
    if (!(said > 0 && found > 0)) return [`${apart} ${unit} ${way}`];
    return [factor < 2 ? `${Math.round(100 * apart / found) || "< 1"} % ${way}` :
      `${+factor.toPrecision(2)} times ${way}`, factor];
  }

  const radio = (form, number) =>
    form.querySelector(`[type=radio][value="${number}"]`);

  /** The words of an option, as they are drawn; mathematics is no text. */
  function option(form, number) {
    const words = document.createElement("span");
    const shown = radio(form, number).nextElementSibling;
    words.append("“", shown.cloneNode(true), "”");
    return words;
  }

  /** The sentence for a wrong answer, such as that of an option; "" for none.
   * `isIt` tells which of the answers that are known to be wrong it is. */
  function why(form, place, isIt, words = "") {
    const known = all(`[data-of="${place}"]`, form)
      .find(({ dataset }) => isIt(dataset.if))?.querySelector("p");
    const shown = document.createElement("span");
    shown.className = "predict-why";
    shown.append(...known?.cloneNode(true).childNodes ?? [words]);
    return shown.textContent && shown;
  }

  /** What a box was told: rows of what, said, found, miss, its factor, and why. */
  function rowsOf(form) {
    const said = kept(form.name) ?? [];
    return JSON.parse(form.dataset.asked).flatMap(([what, unit, found], i) => {
      // An option may be gone since it was chosen.
      if (!said[i] || (unit === null && !radio(form, said[i]))) return [];
      if (unit === null) return [[what, option(form, said[i]), option(form, found),
        said[i] === found ? "right" : "wrong", undefined,
        why(form, i, (wrong) => wrong === said[i])]];
      const value = number(said[i], unit);
      const [off, factor] = miss(value, found, unit);
      const words = factor !== 1 && why(form, i, (wrong) => isNear(value, wrong),
        unitError(value, number(found, unit), unit));
      return [[what, `${said[i]} ${unit}`.trim(), `${found} ${unit}`.trim(), off, factor, words]];
    });
  }

  const toldIn = (form) => form.querySelector(".predict-told");

  /** Tells in a box what was said and what is. */
  function tell(form) {
    const rows = rowsOf(form);
    const isDone = rows.length > 0;
    form.classList.toggle("predict-done", isDone);
    toldIn(form).replaceChildren(...rows.flatMap(([what, said, found, off, , words]) =>
      [`${what}: you said `, said, "; it is ", found, `: ${off}. `, words || "", "\n"]));
    all("input", form).forEach((input) => {
      input.readOnly = isDone;
      input.disabled = isDone && input.type === "radio" && !input.checked;
    });
  }

  /** Tells the same of all boxes in the table at the end. */
  function list() {
    document.querySelector(".predict-found input").checked = kept(ALL);
    const body = document.querySelector(".predict-found tbody");
    body.replaceChildren();
    let count = 0, logs = 0;
    forms().forEach((form) => rowsOf(form).forEach(([what, ...rest]) => {
      const row = body.insertRow();
      const link = row.insertCell().appendChild(document.createElement("a"));
      say(link, what).href = `#${form.id}`;
      const factor = rest.splice(3)[0];
      rest.forEach((shown) => row.insertCell().append(shown));
      if (factor) {
        logs += Math.log(factor);
        count += 1;
      }
    }));
    say(document.querySelector(".predict-mean"), count ?
      `On average the numbers are off by a factor of ${Math.exp(logs / count).toFixed(2)}.` :
      body.rows.length ? "" : "None on this page yet.");
  }

  /** What the fields of a box hold, then the choice; "" where there is none. */
  const written = (form) => [
    ...all("[type=text]", form).map(({ value }) => value.trim()),
    form.querySelector(":checked")?.value ?? "",
  ];

  /** Shows in a box what is kept of it: an answer, or else a guess not sent. */
  function restore(form) {
    const answer = kept(form.name) ?? []; // empty: shown without a guess
    const said = answer.length ? answer : draft(form.name) ?? [];
    all("[type=text]", form).forEach((input, i) => { input.value = said[i] ?? ""; });
    all("[type=radio]", form).forEach((input) => {
      input.checked = input.value === said.at(-1);
    });
    tell(form);
  }

  function compare(form) {
    const said = written(form);
    if (!said.some(Boolean)) return say(toldIn(form), "A rough guess will do.");
    keep(form.name, said);
    open(form.name);
    tell(form);
    list();
    toldIn(form).focus();
  }

  function prepare(form) {
    restore(form);
    form.oninput = () =>
      dpkitKept.set(DRAFT + form.name, JSON.stringify(written(form)));
    form.onsubmit = () => {
      compare(form);
      return false;
    };
    form.querySelector(".predict-show").onclick = () => {
      keep(form.name, []);
      open(form.name);
      say(toldIn(form), "The answer is shown. A switch at the end of the page shows all.").focus();
    };
    form.querySelector(".predict-again button").onclick = () => {
      forget(form.name);
      foldIn(form);
      restore(form);
      list();
      form.querySelector("input").focus();
    };
  }

  /** Shows what another tab has kept or forgotten: one box, or all of them. */
  function follows({ key }) {
    const about = (...keys) =>
      forms().filter(({ name }) => key === null || keys.some((start) =>
        key === start + name || key === start + ALL));
    about(KEY, DRAFT).forEach(restore);
    about(KEY).forEach(foldIn);
    list();
  }

  /** Unfolds what a link leads to. */
  function follow() {
    const target = document.getElementById(decodeURI(location.hash.slice(1)));
    const fold = target?.closest(".predict-fold[hidden]");
    if (!fold) return;
    open(fold.dataset.box);
    target.scrollIntoView();
  }

  function start() {
    forms().forEach(foldIn);
    forms().forEach(prepare);
    const found = document.querySelector(".predict-found");
    if (!found) return;
    const everything = found.querySelector("input");
    list();
    everything.onchange = () => {
      if (everything.checked) keep(ALL, true);
      else forget(ALL);
      forms().forEach(foldIn);
    };
    found.querySelector("button").onclick = () => {
      const all = new Set([...boxes(KEY), ...boxes(DRAFT)]);
      if (!confirm(`Forget all predictions, on all pages (boxes: ${all.size})? They cannot be brought back.`)) return;
      all.forEach(forget);
      location.reload();
    };
    addEventListener("storage", follows);
    addEventListener("beforematch", ({ target }) => open(target.dataset.box));
    addEventListener("hashchange", follow);
    addEventListener("click", ({ target }) => {
      if (target.closest("a")?.hash === location.hash) follow();
    });
    follow();
  }

  // Folds before the page is drawn, so that nothing jumps: as `hidden` will fold
  // (predict.css), but for what has an answer and what the address leads to.
  const early = new CSSStyleSheet();
  const but = boxes(KEY).map((box) => `:not([data-box="${box}"])`).join("");
  const target = JSON.stringify(decodeURI(location.hash.slice(1)));
  early.replaceSync(kept(ALL) ? "" : `@media screen {
    .predict-fold${but} { content-visibility: hidden }
    @supports not (content-visibility: hidden) {
      .predict-fold${but} { display: none } }
    .predicts .predict-note:has(+ .predict-fold${but}) { display: block }
    .predict-fold:has([id=${target}]) {
      display: block; content-visibility: visible }
    .predicts .predict-note:has(+ .predict-fold [id=${target}]) {
      display: none } }`);
  document.adoptedStyleSheets.push(early);
  page.classList.add("predicts");
  addEventListener("DOMContentLoaded", () => {
    try {
      start();
    } catch (error) {
      page.classList.remove("predicts");
      all(".predict-fold").forEach((fold) => fold.removeAttribute("hidden"));
      throw error;
    } finally {
      early.replaceSync("");
    }
  });
})();
