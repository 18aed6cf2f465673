// Predictions that wait: what answers a Predict box is folded until the reader
// has put down a number or a choice. It stays in this browser. Without this
// script, and on paper, nothing is folded.
(() => {
  const KEY = "dpkit-predictions";
  const page = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const say = (element, text) => Object.assign(element, { textContent: text });

  // By box: what its fields held, then the choice. `all`: fold nothing.
  let kept = {};
  try { kept = JSON.parse(localStorage[KEY]); } catch { }
  const keep = () => {
    // Where this is not allowed, a prediction lasts as long as the page.
    try { localStorage[KEY] = JSON.stringify(kept); } catch { }
  };

  const open = (box) => {
    document.forms[box].classList.add("predict-open");
    all(`.predict-fold[data-box="${box}"]`)
      .forEach((fold) => fold.removeAttribute("hidden"));
  };
  const foldAll = () => all(".predict-fold").forEach((fold) => {
    const { box } = fold.dataset;
    if (kept.all || kept[box]) return open(box);
    document.forms[box].classList.remove("predict-open");
    fold.setAttribute("hidden", "until-found"); // by Ctrl + F
  });

  // 1,024 and 0,5 and 3/11 and 2e-7 are numbers.
  function number(text, unit) {
    const [above, below = 1] = text.replace("−", "-").replace(unit, "")
      .replace(/^([-+]?0),/, "$1.").replace(/,(?=\d{3})|\s/g, "")
      .replace(",", ".").split("/");
    return above / below;
  }

  /** How far off a number is, in words, and as a factor. */
  function miss(said, found, unit) {
    const way = said > found ? "too high" : "too low";
    const factor = Math.max(said / found, found / said);
    const apart = +Math.abs(said - found).toPrecision(3);
    if (!apart) return ["right", 1];
    if (unit === "%") return [`${apart} points ${way}`];
    if (!(said > 0 && found > 0)) return [`${apart} ${unit} ${way}`];
    return [factor < 2 ? `${Math.round(100 * apart / found) || "< 1"} % ${way}` :
      `${+factor.toPrecision(2)} times ${way}`, factor];
  }

  /** The words of an option, as they are drawn; mathematics is no text. */
  function option(form, number) {
    const words = document.createElement("span");
    const shown = form.querySelector(`[type=radio][value="${number}"]`).nextElementSibling;
    words.append("“", shown.cloneNode(true), "”");
    return words;
  }

  /** What a box was told: rows of what, said, found, miss, and its factor. */
  function rowsOf(form) {
    const said = kept[form.name] ?? [];
    return JSON.parse(form.dataset.asked).flatMap(([what, unit, found], i) => {
      if (!said[i]) return [];
      if (unit === null) return [[what, option(form, said[i]), option(form, found),
        said[i] === found ? "right" : "wrong"]];
      const off = miss(number(said[i], unit), number(found, unit), unit);
      return [[what, `${said[i]} ${unit}`.trim(), `${found} ${unit}`.trim(), ...off]];
    });
  }

  /** Tells in a box what was said and what is. */
  function tell(form) {
    const rows = rowsOf(form);
    if (!rows.length) return;
    form.classList.add("predict-done");
    form.lastElementChild.replaceChildren(...rows.flatMap(([what, said, found, off]) =>
      [`${what}: you said `, said, "; it is ", found, `: ${off}.\n`]));
    all("input", form).forEach((input) => {
      input.readOnly = true;
      input.disabled = input.type === "radio" && !input.checked;
    });
  }

  /** Tells the same of all boxes in the table at the end. */
  function list() {
    const body = document.querySelector(".predict-found tbody");
    body.replaceChildren();
    let count = 0, logs = 0;
    all("form.predict").forEach((form) => rowsOf(form).forEach(([what, ...rest]) => {
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

  function compare(form) {
    const said = all("[type=text]", form).map(({ value }) => value.trim());
    const told = form.lastElementChild;
    said.push(form.querySelector(":checked")?.value);
    if (!said.some(Boolean)) return say(told, "A rough guess will do.");
    kept[form.name] = said;
    keep();
    open(form.name);
    tell(form);
    list();
    told.focus();
  }

  function prepare(form) {
    const said = kept[form.name] ?? [];
    all("[type=text]", form).forEach((input, i) => { input.value = said[i] ?? ""; });
    all("[type=radio]", form).forEach((input) => {
      input.checked = input.value === said.at(-1);
    });
    tell(form);
    form.onsubmit = () => {
      compare(form);
      return false;
    };
    form.querySelector("[type=button]").onclick = () => {
      kept[form.name] = [];
      keep();
      open(form.name);
      say(form.lastElementChild, "The answer is shown. A switch at the end of the page shows all.").focus();
    };
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
    foldAll();
    all("form.predict").forEach(prepare);
    const found = document.querySelector(".predict-found");
    if (!found) return;
    list();
    const everything = found.querySelector("input");
    everything.checked = kept.all;
    everything.onchange = () => {
      kept.all = everything.checked;
      keep();
      foldAll();
    };
    found.querySelector("button").onclick = () => {
      kept = {};
      keep();
      location.reload();
    };
    addEventListener("beforematch", ({ target }) => open(target.dataset.box));
    addEventListener("hashchange", follow);
    addEventListener("click", ({ target }) => {
      if (target.closest("a")?.hash === location.hash) follow();
    });
    follow();
  }

  // Folds before the page is drawn, so that nothing jumps.
  const early = new CSSStyleSheet();
  const but = Object.keys(kept).map((box) => `:not([data-box="${box}"])`).join("");
  early.replaceSync(kept.all ? "" :
    `@media screen { .predict-fold${but} { display: none } }`);
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
