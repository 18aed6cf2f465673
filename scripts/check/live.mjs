// Live figures: whole without a script; every control works by the keyboard;
// what the page shows is what Python showed when it was asked here, to the
// byte, over http and from a disk; nothing is loaded before a touch; and a
// reader sees the control and the picture together.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";

import { examineFigure, unfold } from "./axe.mjs";
import { PATIENCE, rest, visit } from "./browser.mjs";
import { hasPython } from "./editor.mjs";
import { comesBySteps, slowly, watchBar } from "./progress.mjs";
import { finding, isPrinted } from "./site.mjs";

const HERE = resolve(import.meta.dirname, "..", "..");
const PATH = "dpbook.explore.all:answer";
const LIVE = /<figure class="live[^"]*" id="(live-[^"]+)" data-frames="([^"]+?)\.js/g;
const TOLD = /<script type="application\/json">(.*?)<\/script>/gs;
const REST = 600; // milliseconds; figure.js says after 250 what it shows

/** The figures of a page: {id, frames, told}. */
function figuresOf(site, page) {
  const text = readFileSync(join(site, page), "utf-8");
  return [...text.matchAll(LIVE)].map(({ 1: id, 2: frames, index }) => {
    TOLD.lastIndex = index;
    return { id, frames, told: JSON.parse(TOLD.exec(text)[1]) };
  });
}

/** What Python shows: for each figure [[settings, answer as text]]. */
function askPython(python, figures) {
  const input = JSON.stringify(figures.map(({ told }) => told));
  const path = [HERE, join(HERE, "book")].join(delimiter);
  const env = { ...process.env, PYTHONPATH: path };
  const said = execFileSync(python, ["scripts/check/live_answers.py"],
    { cwd: HERE, env, input, maxBuffer: 1e9 });
  JSON.parse(said).forEach((list, i) => { figures[i].answers = list; });
}

/** All that a figure shows, without its controls. */
const shownIn = (figure) =>
  figure.evaluate((box) => box.className +
    ["pictures", "facts", "sentence"].map((part) =>
      box.querySelector(`.live-${part}`).innerHTML).join("\n"));

/** Waits until a figure has said all: it was not busy before a rest by its own
 * clock, nor after it. */
const settle = (figure) => figure.evaluate(async (box, time) => {
  const isBusy = () => box.classList.contains("live-busy");
  for (let wasBusy = true; wasBusy || isBusy();) {
    wasBusy = isBusy();
    await new Promise((done) => setTimeout(done, time));
  }
}, REST);

/** Waits until what is shown passes a test; tells whether it came to that,
 * before the figure had said all. */
async function until(figure, test) {
  let isSettled = false;
  settle(figure).then(() => { isSettled = true; }, () => {});
  for (const end = Date.now() + PATIENCE; Date.now() < end;) {
    const isLast = isSettled;
    const shown = await shownIn(figure);
    if (!shown.includes("live-busy") && test(shown)) return true;
    if (isLast) return false;
    await new Promise((done) => setTimeout(done, 50));
  }
  return false;
}

/** Without a script: a picture, facts and a sentence. */
async function still(tab, address, { id }, note) {
  const context = await tab.context().browser()
    .newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(address);
  for (const part of [".live-pictures svg", ".live-facts td", ".live-sentence"]) {
    const found = page.locator(`#${id} ${part}`).first();
    if (!await found.count() || !(await found.textContent()).trim()) {
      note(`${id}: without a script there is no ${part}`);
    }
  }
  await context.close();
}

/** What a reader can move: of lists of words the first one stands for all. */
const controlsOf = (figure) => figure.locator([
  ".live-control :is(input, select)",
  ".live-line [tabindex='0']",
  ".live-controls > .live-buttons button:not(:last-child)",
].join(", "));

/** The keys that give a control, which stands at its start, another value. */
async function keysFor(control, told) {
  const [tag, id, inLine, atEnd] = await control.evaluate((c) => [
    c.tagName, c.id, c.closest(".live-line") !== null, c.tagName === "SELECT"
      ? c.selectedIndex === c.options.length - 1 : c.value === c.max]);
  // A word of a list is moved: to the next line, as in its own it may stay.
  if (tag === "BUTTON") return [inLine ? "Alt+ArrowDown" : "Enter"];
  if (tag === "SELECT") return [atEnd ? "ArrowUp" : "ArrowDown"];
  if (!id) return [atEnd ? "ArrowLeft" : "ArrowRight"]; // a slider
  const { stops, start } = told.controls.find(({ name }) => id.endsWith(`-${name}`));
  const other = stops.find((stop) => stop !== start);
  return ["Control+A", ...String(other), "Enter"];
}

/** Moves a control by its keys. */
async function move(tab, control, told) {
  await control.focus();
  for (const key of await keysFor(control, told)) await tab.keyboard.press(key);
}

/** By keys alone, each control changes what is shown, or is refused. */
async function byKeys(tab, { id, told }, note) {
  const figure = tab.locator(`#${id}`);
  const again = figure.getByRole("button", { name: "start again" });
  const first = await shownIn(figure);
  for (const control of await controlsOf(figure).all()) {
    if (!await control.isVisible()) continue;
    await move(tab, control, told);
    const name = await control.evaluate((c) =>
      c.labels?.[0]?.textContent || c.ariaLabel || c.textContent);
    if (!await until(figure, (shown) => shown !== first)) {
      note(`${id}: the control does nothing: ${name}`);
    }
    await again.press("Enter");
    if (!await until(figure, (shown) => shown === first)) {
      note(`${id}: “start again” does not lead back from: ${name}`);
      return;
    }
  }
}

/** A preset says what it sets, until another control is moved. */
async function presetsTell(tab, { id, told }, note) {
  const figure = tab.locator(`#${id}`);
  const line = figure.locator(".live-chosen");
  for (const [words, values] of Object.entries(told.presets)) {
    await figure.getByRole("button", { name: words, exact: true }).click();
    const said = await line.textContent();
    const silent = told.controls.filter(({ name, label, start }) =>
      name in values && values[name] !== start && !said.includes(`${label}: `));
    if (silent.length || !await line.isVisible()) {
      note(`${id}: the preset “${words}” does not say what it sets`);
    }
  }
  await figure.getByRole("button", { name: "start again" }).click();
  if (await line.isVisible()) note(`${id}: “start again” tells of a preset`);
}

/** What was before a control began to move is named, and no more than that. */
async function tellsBefore(tab, { id, told }, note) {
  if (!told.keeps_before) return;
  const figure = tab.locator(`#${id}`);
  const [first, second] = told.controls;
  for (const { name, label, start } of [first, first, second]) {
    await move(tab, figure.locator(`#${id}-${name}`), told);
    const words = `Before (${label}: ${start.toLocaleString("en")})`;
    await settle(figure); // else the words of the move before are still there
    if (!(await shownIn(figure)).includes(words)) {
      note(`${id}: when ${label} moves, this is not said: ${words}`);
    }
  }
  await figure.getByRole("button", { name: "start again" }).click();
}

/** The buttons of a moving picture go from moment to moment, and back. */
async function stepByStep(tab, { id }, note) {
  const figure = tab.locator(`#${id}`);
  if (!await figure.locator("[data-step]").count()) return;
  const times = [];
  for (const name of ["messages →", "messages →", "← messages"]) {
    await figure.getByRole("button", { name }).click();
    times.push(await figure.locator("[data-step]").evaluate((picture) =>
      picture.getAnimations({ subtree: true })[0].currentTime));
  }
  if (times[0] === times[1] || times[0] !== times[2]) {
    note(`${id}: messages do not go step by step (${times.join(", ")} ms)`);
  }
}

/** With 1,100 pixels the controls stand beside the picture; on a phone the row
 * of the one that was moved stays in view while a reader goes to the picture. */
async function inView(tab, { id, told }, note) {
  if (told.controls.some(({ kind }) => kind === "lists")) return;
  const figure = tab.locator(`#${id}`);
  const [side, pictures] = [figure.locator(".live-controls"), figure.locator(".live-pictures")];
  const before = tab.viewportSize();
  await tab.setViewportSize({ width: 1100, height: 900 });
  const [left, right] = [await side.boundingBox(), await pictures.boundingBox()];
  if (left.x + left.width > right.x) {
    note(`${id}: with 1,100 pixels the controls are not beside the picture`);
  }
  await tab.setViewportSize({ width: 390, height: 844 });
  const control = figure.locator(".live-control :is(select, input[inputmode])").first();
  await move(tab, control, told);
  await pictures.evaluate((part) =>
    scrollBy(0, part.getBoundingClientRect().top - innerHeight / 3));
  await rest(tab, 200);
  const { y, height } = await control.boundingBox();
  if (y < 0 || y + height > 844) {
    note(`${id}: on a phone the control that was moved is out of view`);
  }
  await tab.setViewportSize(before);
  await figure.getByRole("button", { name: "start again" }).click();
}

/** What the page has and gets is what Python shows. */
async function compare(tab, { id, frames, told, answers }, note) {
  const found = await tab.evaluate(async ([path, name, key, questions]) => {
    const ask = (settings) => dpkitPython.call(path,
      JSON.stringify({ figure: name, settings })).catch(String);
    await ask({}); // starts it
    const start = performance.now();
    const got = [];
    for (const settings of questions) got.push(await ask(settings));
    const milliseconds = (performance.now() - start) / questions.length;
    return { got, milliseconds, frames: dpkitFrames[key] ?? [] };
  }, [PATH, told.name, frames, answers.map(([settings]) => settings)]);
  const wrong = answers.filter(([, answer], i) => found.got[i] !== answer);
  if (wrong.length) {
    note(`${id}: ${wrong.length} of ${answers.length} answers are not ` +
      `Python's, such as that for ${JSON.stringify(wrong[0][0])}`);
  }
  const stale = found.frames.filter(([, shown], i) =>
    JSON.stringify(shown) !== JSON.stringify(JSON.parse(answers[i][1])));
  const some = told.controls.some(({ kind }) => kind !== "lists");
  if (stale.length || (some && !found.frames.length)) {
    note(`${id}: ${stale.length} of ${found.frames.length} frames are not ` +
      `Python's, such as that for ${JSON.stringify(stale[0]?.[0])}`);
  }
  console.log(`${id}: ${found.frames.length} frames, ` +
    `${found.milliseconds.toFixed(0)} ms an answer of Python`);
}

/** A view that was sent, from a disk: Python answers, and that is shown. */
async function fromDisk(tab, file, { id, told, answers }, note) {
  const name = id.replace("live-", "");
  const start = Object.fromEntries(told.controls.map((c) => [c.name, c.start]));
  // What is sent is compared with the start, where it is compared.
  const [settings, answer] = answers.findLast(([{ before = start }, text]) =>
    JSON.parse(text).refused === "" &&
    Object.keys(start).every((key) => before[key] === start[key])) ?? [];
  if (!answer) return; // of a list almost every order is refused
  const query = new URLSearchParams(Object.keys(start)
    .filter((key) => settings[key] !== start[key])
    .map((key) => [`${name}.${key}`, settings[key]]));
  const begin = performance.now();
  await tab.goto(`file://${file}?${query}#${id}`);
  const { pictures, sentence } = JSON.parse(answer);
  const want = await tab.evaluate((svgs) =>
    Object.assign(document.createElement("div"), { innerHTML: svgs }).innerHTML,
  pictures.join(""));
  const same = await until(tab.locator(`#${id}`), (shown) =>
    shown.includes(want) && shown.endsWith(sentence));
  const seconds = (performance.now() - begin) / 1000;
  console.log(`${id}: from a disk, a sent view after ${seconds.toFixed(1)} s`);
  if (!same) note(`${id}: from a disk, a sent view is not shown (${query})`);
}

const OLD = "What is shown is from before the change.";

/** Whether what a figure shows is marked as old, in words and in looks. */
const isOld = (figure) => figure.evaluate((box, words) =>
  box.querySelector(".live-sentence").textContent.includes(words) &&
  getComputedStyle(box.querySelector(".live-facts")).fontStyle === "italic", OLD);

/** Begins to write down whether a figure is marked as old while Python is
 * loaded. The page itself does it, as in watchBar. */
const watchOld = (figure) => figure.evaluateHandle((box, words) => {
  const seen = [];
  const look = () => {
    const text = box.querySelector(".live-sentence").textContent;
    if (!text.includes("Python is loaded")) return;
    const { fontStyle } = getComputedStyle(box.querySelector(".live-facts"));
    seen.push(text.includes(words) && fontStyle === "italic");
  };
  new MutationObserver(look).observe(box,
    { subtree: true, childList: true, attributes: true });
  return seen;
}, OLD);

/** While Python is loaded the page says how far it is, and what it shows is
 * marked as old; so it is with what is refused. */
async function loads(tab, address, { id }, note) {
  const figure = tab.locator(`#${id}`);
  const field = figure.locator("input[inputmode]:visible").first();
  if (!await field.count()) return;
  await slowly(tab, async () => {
    await tab.goto(address, { waitUntil: "load" });
    await unfold(tab);
    if (await isOld(figure)) note(`${id}: is old before it is touched`);
    await field.fill("-1e99");
    const watched = await watchBar(figure);
    const marks = await watchOld(figure);
    await field.press("Enter");
    const isBusy = async () =>
      (await figure.getAttribute("class")).includes("live-busy");
    if (!await comesBySteps(watched, isBusy)) {
      note(`${id}: nothing says how much of Python is loaded`);
    }
    if (!(await marks.jsonValue()).includes(true)) {
      note(`${id}: numbers are not marked as old while Python is loaded`);
    }
  });
  await until(figure, (shown) => shown.includes(OLD));
  if (!await isOld(figure)) note(`${id}: a refusal does not say that numbers are old`);
  await figure.getByRole("button", { name: "start again" }).click();
  await until(figure, (shown) => !shown.includes(OLD));
  if (await isOld(figure)) note(`${id}: new numbers are marked as old`);
}

/** Has axe look at two more states: changed and, in two views, refused. */
async function states(tab, page, { id, told }, note) {
  const figure = tab.locator(`#${id}`);
  const examine = async (state, views) =>
    (await examineFigure(tab, `${page}, ${state}`, id, views)).forEach(note);
  const first = await shownIn(figure);
  await move(tab, controlsOf(figure).first(), told);
  await until(figure, (shown) => shown !== first);
  await examine("changed", ["light"]);
  const field = figure.locator("input[inputmode]:visible").first();
  if (!await field.count()) return;
  await field.fill("-1e99");
  await field.press("Enter");
  if (!await until(figure, (shown) => shown.includes("live-refused"))) {
    note(`${id}: −1e99 is not refused`);
  }
  await examine("refused", ["dark", "phone"]);
}

const look = (site, origin, figures, slow) => async (tab, page) => {
  const findings = [];
  const note = (what) => findings.push(
    typeof what === "string" ? finding("live", page, what) : what);
  const early = [];
  tab.on("request", (request) => {
    if (/live\/(frames|python|theory)/.test(request.url())) early.push(request.url());
  });
  tab.on("pageerror", (error) => note(`a script fails: ${error.message}`));
  await tab.goto(`${origin}/${page}`, { waitUntil: "load" });
  if (early.length) note(`loaded before a touch: ${early[0]}`);
  if (!await hasPython(tab)) {
    note("there is no Python on it: npm and node pack it");
    return findings;
  }
  if (page === slow.page) await loads(tab, `${origin}/${page}`, slow, note);
  await unfold(tab); // a figure may be the answer of a Predict box
  for (const figure of figures.filter((f) => f.page === page)) {
    await still(tab, `${origin}/${page}`, figure, note);
    await byKeys(tab, figure, note);
    await presetsTell(tab, figure, note);
    await tellsBefore(tab, figure, note);
    await stepByStep(tab, figure, note);
    await inView(tab, figure, note);
    await compare(tab, figure, note);
    await states(tab, page, figure, note);
  }
  for (const figure of figures.filter((f) => f.page === page)) {
    await fromDisk(tab, join(site, page), figure, note);
  }
  return findings;
};

/** All findings about live figures, and the seconds that they take. */
export async function touch(site, origin, pages, python) {
  const figures = pages.filter((page) => !isPrinted(page)).flatMap((page) =>
    figuresOf(site, page).map((figure) => ({ page, ...figure })));
  if (figures.length === 0) return [];
  askPython(python, figures);
  // Python is loaded by the same script everywhere.
  const slow = figures.find(({ told }) =>
    told.controls.some(({ kind, folded }) => kind === "number" && !folded)) ?? {};
  return visit([...new Set(figures.map((f) => f.page))],
    look(resolve(site), origin, figures, slow));
}
