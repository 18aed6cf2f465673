// What answers a Predict box is folded until the reader has guessed, by
// keyboard alone. Without a script and on paper it is open.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { examineAsIs, show, VIEWS } from "./axe.mjs";
import { visit } from "./browser.mjs";
import { finding, isPrinted } from "./site.mjs";

const LEAST = 44; // pixels, of what is touched
const PARTS = ["form.predict", ".predict-note", ".predict-found"];

/** The boxes whose folds are open, or are not; run in the page. */
function foldsThat({ areOpen }) {
  const isOpen = (fold) => [...fold.children].some((part) =>
    part.checkVisibility() && part.getBoundingClientRect().height > 0);
  return [...document.querySelectorAll(".predict-fold")]
    .filter((fold) => isOpen(fold) === areOpen)
    .map((fold) => fold.dataset.box);
}

const told = (page, boxes, what) =>
  [...new Set(boxes)].map((box) => finding("predictions", page, `${box} ${what}`));

/** That all is open, and no form is shown. */
async function wholeWithout(tab, page, what) {
  const controls = "form.predict :is(input, button), .predict-found button";
  const shown = await tab.evaluate((selector) =>
    [...document.querySelectorAll(selector)]
      .filter((control) => control.checkVisibility())
      .map((control) => control.form?.name ?? "the table"), controls);
  const folded = await tab.evaluate(foldsThat, { areOpen: false });
  return [
    ...told(page, folded, `is folded ${what}`),
    ...told(page, shown, `shows its form ${what}`),
  ];
}

/** What a box has to tell: a number, or the words of the right option. */
function answerOf(form) {
  const asked = JSON.parse(form.dataset.asked);
  const isNumber = form.querySelector("input").type === "text";
  const [, , found] = isNumber ? asked[0] : asked.at(-1);
  if (isNumber) return `it is ${found}`;
  const right = form.querySelector(`[type=radio][value="${found}"]`);
  return `it is “${right.closest("label").textContent.trim()}”`;
}

/** The answers to a box that are wrong, each with its sentence or the start of
 * it: options, numbers that a usual error gives, and those of another unit.
 * Numbers that are rounded are right. */
function answersTo(form) {
  return JSON.parse(form.dataset.asked).flatMap(([, unit, found], place) => {
    const known = [...form.querySelectorAll(`[data-of="${place}"]`)].map((part) =>
      ({ place, value: part.dataset.if, sentence: part.textContent.trim() }));
    if (unit !== null) {
      const factor = unit === "%" ? 100 : 1000;
      const times = (number) => String(number * found.replaceAll(",", ""));
      const rounded = { place, value: times(1.01), sentence: "", verdict: ": right. " };
      const sentence = `A factor of ${factor.toLocaleString("en")} `;
      return [...known, rounded, { place, value: times(factor), sentence }];
    }
    const wrong = form.querySelectorAll(`[type=radio]:not([value="${found}"])`);
    return [...wrong].map(({ value }) =>
      known.find((one) => one.value === value) ?? { place, value, sentence: "?" });
  });
}

/** Gives each of these answers: its sentence is shown, and no other one. Then
 * takes the answer back: the box asks again. */
async function answerAll(tab, page) {
  const wrong = [], open = [];
  for (const form of await tab.locator("form.predict").all()) {
    const name = await form.getAttribute("name");
    if (!await form.locator("[type=submit]").isVisible()) continue;
    const fields = form.locator("[type=text]");
    for (const { place, value, sentence, verdict = "" } of await form.evaluate(answersTo)) {
      if (place < await fields.count()) await fields.nth(place).fill(value);
      else await form.locator(`[type=radio][value="${value}"]`).check();
      await form.locator("[type=submit]").press("Enter");
      const why = form.locator(".predict-told .predict-why");
      const said = await why.isVisible() ? (await why.textContent()).trim() : "";
      const words = await form.locator(".predict-told").textContent();
      if (!said.startsWith(sentence) || !words.includes(verdict)) wrong.push(name);
      await form.locator(".predict-again button").press("Enter");
      const opened = await tab.evaluate(foldsThat, { areOpen: true });
      if (!opened.includes(name) && !await why.count()) continue;
      open.push(name);
      break; // nothing can be answered any more
    }
  }
  return [
    ...told(page, wrong, "does not say why a wrong answer is wrong"),
    ...told(page, open, "does not ask again"),
  ];
}

/** What another tab would have stored: sets it all, as it would be heard of.
 * Run in the page. */
function store(entries) {
  const keys = new Set([...Object.keys(localStorage), ...Object.keys(entries)]);
  for (const key of keys) {
    if (key in entries) localStorage[key] = entries[key];
    else delete localStorage[key];
    dispatchEvent(new StorageEvent("storage", { key }));
  }
}

/** That an answer of another tab is shown, and one taken back is not. */
async function followed(tab, page) {
  const form = tab.locator("form.predict").first();
  const stored = () => tab.evaluate(() => ({ ...localStorage }));
  const isDone = () => form.evaluate((part) => part.matches(".predict-done"));
  const asked = await stored();
  await answer(tab, form);
  const answered = await stored();
  await tab.evaluate(store, asked);
  const isAsking = !await isDone();
  await tab.evaluate(store, answered);
  const isTold = await isDone();
  await tab.evaluate(store, asked);
  const name = await form.getAttribute("name");
  return isAsking && isTold ? [] : told(page, [name], "differs in another tab");
}

/** What the fields of a box hold; run in the page. */
const fieldsOf = (form) =>
  [...form.querySelectorAll("input")].map((input) => input.checked || input.value);

/** That a guess which is not sent is there after a reload, until the answer is
 * taken back. */
async function drafted(tab, page) {
  const form = tab.locator("form.predict").first();
  const name = await form.getAttribute("name");
  const empty = await form.evaluate(fieldsOf);
  await type(tab, form);
  const typed = await form.evaluate(fieldsOf);
  await tab.reload({ waitUntil: "load" });
  const kept = await form.evaluate(fieldsOf);
  if (String(kept) !== String(typed) || String(typed) === String(empty)) {
    return told(page, [name], "forgets a guess that is not sent");
  }
  await form.locator("[type=submit]").press("Enter");
  await form.locator(".predict-again button").press("Enter");
  await tab.reload({ waitUntil: "load" });
  const left = await form.evaluate(fieldsOf);
  return String(left) === String(empty) ? [] :
    told(page, [name], "keeps a guess that was taken back");
}

/** That all predictions are forgotten after a question, and not before. */
async function forgotten(tab, page) {
  const form = tab.locator("form.predict").first();
  const name = await form.getAttribute("name");
  const isDone = () => form.evaluate((part) => part.matches(".predict-done"));
  // The page asks, unless it loads itself again at once.
  const press = async (act) => {
    const again = tab.waitForEvent("load").catch(() => {});
    const asked = new Promise((done) =>
      tab.once("dialog", (dialog) => dialog[act]().then(done)));
    await tab.locator(".predict-found button").press("Enter");
    await Promise.race([asked, again]);
    return { again };
  };
  await answer(tab, form);
  await press("dismiss");
  if (!await isDone()) return told(page, [name], "is forgotten unasked");
  await (await press("accept")).again;
  return await isDone() ? told(page, [name], "is not forgotten with all") : [];
}

/** That two tabs keep the answers of each other: one answers the first box,
 * the other the second, the one the third. */
async function inTwoTabs(tab, page) {
  const other = await tab.context().newPage();
  await other.goto(tab.url(), { waitUntil: "load" });
  const forms = tab.locator("form.predict");
  const names = await forms.evaluateAll((all) => all.slice(0, 3).map(({ name }) => name));
  for (const [i, name] of names.entries()) {
    const one = i % 2 ? other : tab;
    await one.bringToFront();
    await answer(one, one.locator(`form.predict[name="${name}"]`));
  }
  await other.close();
  await tab.reload({ waitUntil: "load" });
  const done = await tab.locator("form.predict-done")
    .evaluateAll((all) => all.map(({ name }) => name));
  for (const name of names.filter((one) => done.includes(one))) {
    await tab.locator(`form.predict[name="${name}"] .predict-again button`).press("Enter");
  }
  return told(page, names.filter((name) => !done.includes(name)),
    "is forgotten when another tab answers");
}

/** Types or chooses a guess in a box by keyboard. */
async function type(tab, form) {
  const isText = await form.evaluate((part) => {
    const input = part.querySelector("input");
    input.focus({ preventScroll: true });
    return input.type === "text";
  });
  await tab.keyboard.press(isText ? "1" : "Space");
}

/** Guesses in a box by keyboard. */
async function answer(tab, form) {
  await type(tab, form);
  await tab.keyboard.press("Enter");
}

/** Guesses in each box: it opens, and tells what it is. */
async function guess(tab, page) {
  const forms = tab.locator("form.predict");
  const silent = [];
  for (const form of await forms.all()) {
    await answer(tab, form);
    const found = await form.evaluate(answerOf);
    const said = await form.locator("[role=status]").textContent();
    if (!said.includes(found)) silent.push(await form.getAttribute("name"));
  }
  const folded = await tab.evaluate(foldsThat, { areOpen: false });
  return [
    ...told(page, folded, "stays folded after a guess"),
    ...told(page, silent, "does not tell its answer"),
  ];
}

/** That a link leads into what is folded, by one of its places. */
async function leadInto(tab, page, origin) {
  const place = await tab.evaluate(() =>
    document.querySelector(".predict-fold[hidden] [id]")?.id);
  if (!place) return [];
  await tab.goto(`${origin}/${page}#${encodeURIComponent(place)}`);
  const isSeen = await tab.evaluate((id) => {
    const target = document.getElementById(id);
    const fold = target.closest(".predict-fold");
    const seen = target.checkVisibility() && !fold.hidden;
    fold.hidden = "until-found"; // as it was
    return seen;
  }, place);
  return isSeen ? [] : [finding("predictions", page, `a link does not unfold #${place}`)];
}

/** What is touched is large enough. */
async function small(tab, page) {
  const found = await tab.evaluate((least) => {
    const touched = "form.predict :is(button, [type=text], li label), .predict-found :is(button, label)";
    return [...document.querySelectorAll(touched)]
      .filter((part) => part.checkVisibility() && Math.round(part.getBoundingClientRect().height) < least)
      .map((part) => part.form?.name ?? part.textContent.trim());
  }, LEAST);
  return told(page, found, `has something lower than ${LEAST} pixels`);
}

/** What axe finds in the boxes of a page, in both themes. */
async function examined(tab, page, state) {
  const findings = [];
  for (const view of VIEWS.filter(({ name }) => name !== "phone")) {
    await show(tab, view);
    const place = `${page} (${view.name}, ${state})`;
    findings.push(...await examineAsIs(tab, place, PARTS));
  }
  return findings;
}

/** The lightest pages that have boxes, and folds that lie apart from them. */
export function lightest(site, pages, count) {
  const text = (page) => readFileSync(join(site, page), "utf-8");
  return pages
    .filter((page) => !isPrinted(page) && text(page).includes("predict-note"))
    .sort((a, b) => text(a).length - text(b).length)
    .slice(0, count);
}

/** Looks at the boxes of a page that was just opened. What is not folded axe
 * sees on each page; boxes as they come, and answered, where `isLooked`. */
export async function predict(tab, page, origin, isLooked) {
  if (isPrinted(page) || !await tab.locator(".predict-fold").count()) return [];
  const open = await tab.evaluate(foldsThat, { areOpen: true });
  const findings = [...told(page, open, "is not folded"), ...await small(tab, page)];
  if (isLooked) findings.push(...await examined(tab, page, "folded"));
  await tab.emulateMedia({ media: "print" });
  findings.push(...await wholeWithout(tab, page, "on paper"));
  await tab.emulateMedia({ media: "screen" });
  findings.push(...await leadInto(tab, page, origin), ...await answerAll(tab, page));
  if (isLooked) {
    findings.push(...await drafted(tab, page), ...await forgotten(tab, page),
      ...await inTwoTabs(tab, page));
  }
  findings.push(...await followed(tab, page), ...await guess(tab, page));
  findings.push(...await small(tab, page));
  if (isLooked) findings.push(...await examined(tab, page, "answered"));
  return findings;
}

/** That nothing is folded without a script. */
export function predictWithoutScript(origin, pages) {
  const look = async (tab, page) => {
    await tab.goto(`${origin}/${page}`, { waitUntil: "load" });
    return wholeWithout(tab, page, "without a script");
  };
  return visit(pages, look, { javaScriptEnabled: false });
}
