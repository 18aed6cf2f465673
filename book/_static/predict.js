// Predictions that wait: what answers a Predict box is folded until the reader
// has put down a number or a choice. It is kept in this browser, and is not
// sent anywhere. Without this script, and on paper, nothing is folded.
(() => {
  const KEY = "dpkit-predictions";
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // By box: what was said, or that its answer was asked for without a guess.
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch { /* Where nothing may be kept, a prediction lasts as long as the page. */ }
  const keep = () => {
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
    } catch { /* as above */ }
  };

  // Folds before the page is drawn, so that nothing jumps.
  const early = new CSSStyleSheet();
  const but = Object.keys(kept).map((box) => `:not([data-box="${CSS.escape(box)}"])`);
  if (!kept.all) early.replaceSync(`@media screen { .predict-fold${but.join("")} { display: none; } }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, early];
  root.classList.add("predicts");
  const giveUp = () => {
    early.replaceSync("");
    root.classList.remove("predicts");
    all(".predict-fold").forEach((fold) => fold.removeAttribute("hidden"));
  };

  const nameOf = (form) => form.id.replace("predict-", "");
  const foldsOf = (box) => all(".predict-fold").filter((fold) => fold.dataset.box === box);
  const open = (box) => foldsOf(box).forEach((fold) => fold.removeAttribute("hidden"));
  const foldAll = () => all("form.predict").map(nameOf).forEach((box) =>
    foldsOf(box).forEach((fold) => {
      if (kept.all || kept[box]) fold.removeAttribute("hidden");
      else fold.setAttribute("hidden", "until-found"); // the search of the browser finds it
    }));

  // 1,024 and 0,5 and 3/11 and 2e-7 are numbers.
  function number(text, unit) {
    const plain = text.replace("−", "-").replace(unit, "").replace(/\s/g, "")
      .replace(/^([-+]?0),/, "$1.").replace(/,(?=\d{3})/g, "").replace(",", ".");
    const [above, below] = plain.split("/");
    return plain === "" ? NaN : Number(above) / Number(below ?? 1);
  }

  function miss(said, found, unit) {
    if (said === found) return "right";
    const way = said > found ? "too high" : "too low";
    if (unit === "%" || said <= 0 || found <= 0) {
      const apart = Math.abs(said - found);
      return `${Number(apart.toPrecision(3))} ${unit === "%" ? "points" : unit} ${way}`;
    }
    const times = Math.max(said / found, found / said);
    if (times < 1.005) return "as good as right";
    if (times >= 2) return `${times < 10 ? times.toFixed(1) : Math.round(times).toLocaleString("en")} times ${way}`;
    return `${Math.round(100 * Math.abs(said / found - 1))} % ${way}`;
  }

  // What was said about a box, as rows: about what, said, found, miss, factor.
  function rowsOf(form) {
    const said = kept[nameOf(form)]?.said;
    if (!said) return [];
    const rows = JSON.parse(form.dataset.asked).flatMap(({ label, unit, found }, i) => {
      const guess = number(said[i] ?? "", unit);
      if (Number.isNaN(guess)) return [];
      const right = number(found, unit);
      const factor = guess > 0 && right > 0 ? Math.abs(Math.log(guess / right)) : null;
      return [{ label, said: `${said[i].trim()} ${unit}`, found: `${found} ${unit}`, miss: miss(guess, right, unit), factor }];
    });
    const right = form.dataset.choice;
    if (right && said.choice) {
      const label = form.querySelector("legend").textContent;
      const is = said.choice === right ? "right" : "another";
      rows.push({ label, said: `choice ${said.choice}`, found: `choice ${right}`, miss: is, isRight: said.choice === right });
    }
    return rows;
  }

  function tell(form) {
    const rows = rowsOf(form);
    const told = form.querySelector(".predict-told");
    told.textContent = rows.map((row) =>
      `${row.label ? row.label.replace(/ …$/, "") + ": y" : "Y"}ou said ${row.said.trim()}; it is ${row.found.trim()}: ${row.miss}.`).join("\n");
    if (rows.length === 0) return;
    form.classList.add("predict-done");
    all("input", form).forEach((input) => {
      if (input.type === "text") input.readOnly = true;
      if (input.type === "radio") input.disabled = !input.checked;
    });
    if (kept[nameOf(form)].said.choice) {
      form.querySelector(`[value="${form.dataset.choice}"]`).closest("li").classList.add("predict-right");
    }
  }

  // The table at the end of the chapter.
  function list() {
    const place = document.querySelector(".predict-list");
    const make = (tag, text, parent) => parent.appendChild(Object.assign(document.createElement(tag), { textContent: text }));
    place.replaceChildren();
    const rows = all("form.predict").flatMap((form) => rowsOf(form).map((row) => ({ ...row, form })));
    if (rows.length === 0) {
      make("p", "You have not predicted anything on this page yet.", place);
      return;
    }
    const table = make("table", "", place);
    table.className = "table";
    const head = make("tr", "", make("thead", "", table));
    ["asked", "you said", "it is", "miss"].forEach((text) => { make("th", text, head).scope = "col"; });
    const body = make("tbody", "", table);
    for (const { label, said, found, miss: off, form } of rows) {
      const row = make("tr", "", body);
      make("a", label.replace(/ …$/, "") || "the number", make("td", "", row)).href = `#${form.id}`;
      [said, found, off].forEach((text) => make("td", text, row));
    }
    const logs = rows.map(({ factor }) => factor).filter((factor) => typeof factor === "number");
    const factor = Math.exp(logs.reduce((sum, one) => sum + one, 0) / logs.length);
    const chosen = rows.filter(({ isRight }) => isRight !== undefined);
    const mean = factor < 2 ? `${Math.round(100 * (factor - 1))} %` : `a factor of ${factor.toFixed(1)}`;
    make("p", [
      logs.length ? `Mean miss of the numbers: ${mean}.` : "",
      chosen.length ? `Choices that are right: ${chosen.filter(({ isRight }) => isRight).length} of ${chosen.length}.` : "",
    ].join(" "), place);
  }

  function compare(form) {
    const fields = all("input[type=text]", form);
    const asked = JSON.parse(form.dataset.asked);
    const wrong = fields.find((input, i) => input.value.trim() && !Number.isFinite(number(input.value, asked[i].unit)));
    const choice = form.querySelector("[type=radio]:checked")?.value;
    const told = form.querySelector(".predict-told");
    if (wrong || !(choice || fields.some((input) => input.value.trim()))) {
      told.textContent = wrong ? `This is not a number: ${wrong.value}` :
        fields.length ? "Put down a number first. A rough one will do." : "Choose first.";
      (wrong ?? form.querySelector("input")).focus();
      return;
    }
    const said = { ...fields.map((input) => input.value), choice };
    kept[nameOf(form)] = { said };
    keep();
    open(nameOf(form));
    tell(form);
    list();
    told.focus();
  }

  function restore(form) {
    const said = kept[nameOf(form)]?.said;
    if (!said) return;
    all("input[type=text]", form).forEach((input, i) => { input.value = said[i] ?? ""; });
    const chosen = all("[type=radio]", form).find(({ value }) => value === said.choice);
    if (chosen) chosen.checked = true;
    tell(form);
  }

  // A link into what is folded unfolds it.
  function follow() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target?.closest(".predict-fold[hidden]");
    if (!fold) return;
    open(fold.dataset.box);
    target.scrollIntoView();
  }

  function start() {
    const forms = all("form.predict");
    forms.forEach((form) => {
      restore(form);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        compare(form);
      });
      form.querySelector("button[type=button]").addEventListener("click", () => {
        kept[nameOf(form)] ??= { shown: true };
        keep();
        open(nameOf(form));
        form.querySelector(".predict-told").textContent = "The answer is shown.";
        form.querySelector(".predict-told").focus();
      });
    });
    all(".predict-fold").forEach((fold) =>
      fold.addEventListener("beforematch", () => open(fold.dataset.box)));
    const switches = all(".predict-all input");
    switches.forEach((box) => {
      box.checked = Boolean(kept.all);
      box.addEventListener("change", () => {
        kept.all = box.checked;
        switches.forEach((other) => { other.checked = box.checked; });
        keep();
        foldAll();
      });
    });
    all(".predict-found button").forEach((button) => button.addEventListener("click", () => {
      kept = {};
      keep();
      location.reload();
    }));
    if (forms.length) list();
    foldAll();
    early.replaceSync("");
    follow();
    addEventListener("hashchange", follow);
    document.addEventListener("click", (event) => {
      if (event.target.closest?.("a")?.hash === location.hash) follow();
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    try {
      start();
    } catch (error) {
      giveUp();
      throw error;
    }
  });
})();
