// The editor of an exercise in the page: nothing typed is lost, and Python in
// the page does not die.
import { examineAsIs, show, VIEWS } from "./axe.mjs";
import { PATIENCE, rest } from "./browser.mjs";
import { comesBySteps, slowly, watchBar } from "./progress.mjs";

const BUSY = /^(Python is|$)/;
const SHORT = 2; // seconds, for a loop without an end
const LOOP = "print('so far')\nwhile True:\n    pass";
const FIGURE = ["dpbook.explore.all:answer",
  '{"figure": "pipeline", "settings": {}}'];
// An ordinary mistake: the stack of the browser overflows before Python's.
const BREAKS = {
  "a recursion without an end": [
    "import functools", "", "@functools.lru_cache",
    "def f(n):", "    return f(n + 1)", "", "f(0)"].join("\n"),
};
// What is run, what is then said, and what is shown below.
const RUNS = [
  ["6 * 7", "The last line has a value", "42"],
  ["print(1)", "It printed:", "1\n"],
  ["import sys\nprint('no', file=sys.stderr)", "It printed:", "no\n"],
  ["import warnings\nwarnings.warn('old')", "It printed:",
    "<your code>:2: UserWarning: old\n  warnings.warn('old')\n"],
  ["def half(x):\n    return x / 0\n\nhalf(3)",
    "line 2: ZeroDivisionError: division by zero",
    '  File "<your code>", line 4, in <module>\n    half(3)\n' +
    '  File "<your code>", line 2, in half\n    return x / 0\n'],
  ["import torch", "line 1: PyTorch does not run in the page",
    "No module named 'torch'"],
  ["x = input()", "line 1: RuntimeError: the page cannot read from the keyboard",
    "x = input()"],
  ["import builtins, math\nbuiltins.print = math.pi = None",
    "It ran, and printed nothing.", ""],
  ["import math\nprint(math.pi > 3)", "It printed:", "True\n"],
];

/** Whether the page has Python: a book that was built without npm has none. */
export const hasPython = (tab) =>
  tab.evaluate(() => globalThis.dpkitPython?.available === true);

const said = (place) => place.locator(".verdict").textContent();

/** What an exercise says when it has an answer. */
async function answer(place) {
  const end = Date.now() + PATIENCE;
  while (Date.now() < end) {
    const words = await said(place);
    if (!BUSY.test(words)) return words;
    await new Promise((done) => setTimeout(done, 20));
  }
  return "it says nothing";
}

const button = (place, name) =>
  place.locator(".acts").getByRole("button", { name, exact: true });

/** Presses a button of an exercise; what it then says. */
export async function press(place, name) {
  await button(place, name).press("Enter");
  return answer(place);
}

/** Types code in place of what is there, and has it checked. */
export async function check(place, code) {
  await place.locator("textarea").fill(code);
  return press(place, "Check");
}

/** The same, and has it run. */
async function run(place, code) {
  await place.locator("textarea").fill(code);
  return press(place, "Run");
}

/** By keys: Tab indents, after Escape it leaves; and a reload keeps code. */
async function byKeys(tab, place, note) {
  const area = place.locator("textarea");
  await area.fill("");
  await area.focus();
  for (const key of ["x", ":", "Enter", "y", "Tab", "Escape", "Tab"]) {
    await tab.keyboard.press(key);
  }
  const left = await tab.evaluate(() => document.activeElement.tagName);
  const text = await area.inputValue();
  if (text !== "x:\n    y    ") note(`keys write ${JSON.stringify(text)}`);
  if (left !== "BUTTON") note(`Escape and Tab do not leave, but reach ${left}`);
  await tab.reload({ waitUntil: "load" });
  if (await area.inputValue() !== text) note("a reload forgets the code");
}

/** “Start again” can be undone, after a reload too. */
async function undo(tab, place, note) {
  const area = place.locator("textarea");
  const own = "own = 1\n";
  await area.fill(own);
  await press(place, "Start again");
  const stub = await area.inputValue();
  if (stub === own) note("“Start again” does nothing");
  for (const isReloaded of [false, true]) {
    if (isReloaded) {
      await press(place, "Start again");
      await press(place, "Start again"); // of a stub: nothing to undo
      await tab.reload({ waitUntil: "load" });
    }
    if (!await button(place, "Undo").isVisible()) {
      note("“Start again” cannot be undone");
      return;
    }
    await press(place, "Undo");
    if (await area.inputValue() !== own) note("“Undo” loses the code");
  }
  await press(place, "Start again");
  const later = "later = 2\n";
  await area.fill(later);
  await press(place, "Undo");
  await press(place, "Undo");
  if (await area.inputValue() !== later) note("“Undo” loses what came later");
}

/** Two tabs show the same code, and neither overwrites the other's. */
async function inTwoTabs(tab, place, note) {
  const other = await tab.context().newPage();
  await other.goto(tab.url(), { waitUntil: "load" });
  const name = await place.getAttribute("data-exercise");
  const areas = [tab, other].map((one) =>
    one.locator(`[data-exercise="${name}"] textarea`));
  await areas[1].fill("one");
  await areas[0].focus();
  await areas[0].press("Control+End");
  await areas[0].pressSequentially(" two");
  await other.reload({ waitUntil: "load" });
  for (const area of areas) {
    const text = await area.inputValue();
    if (text !== "one two") note(`of two tabs one has ${JSON.stringify(text)}`);
  }
  await other.close();
}

/** Lines have numbers at their side; what names a line leads to it. */
async function lines(place, note) {
  const words = await run(place, "one = 1\ntwo = 1 / 0\n");
  const numbers = place.locator(".numbers");
  if (!await numbers.count()) return note("lines have no numbers");
  const [text, isBeside, isSilent] = await numbers.evaluate((part) => {
    const looks = (box) => {
      const { fontFamily, fontSize, lineHeight, paddingTop } = getComputedStyle(box);
      const { top } = box.getBoundingClientRect();
      return JSON.stringify([fontFamily, fontSize, lineHeight,
        Math.round(top + box.clientTop), paddingTop]);
    };
    const area = part.parentNode.querySelector("textarea");
    return [part.textContent, looks(part) === looks(area), part.ariaHidden];
  });
  if (text !== "1\n2\n3\n") note(`lines are numbered ${JSON.stringify(text)}`);
  if (!isBeside) note("the numbers of lines do not stand beside them");
  if (isSilent !== "true") note("the numbers of lines are read out");
  const lead = place.locator(".verdict").getByRole("button", { name: "line 2" });
  if (!await lead.count()) return note(`nothing leads to the line: ${words}`);
  await lead.press("Enter");
  const selected = await place.locator("textarea").evaluate((area) =>
    area.value.slice(area.selectionStart, area.selectionEnd));
  if (selected !== "two = 1 / 0") note(`“line 2” leads to ${JSON.stringify(selected)}`);
}

/** What runs say and show. */
async function says(place, note) {
  for (const [code, expected, shown] of RUNS) {
    const words = await run(place, code);
    const below = (await place.locator(".shown:visible").allTextContents()).join("");
    if (!words.includes(expected) || !below.includes(shown)) {
      note(`${JSON.stringify(code)}: ${words} ${JSON.stringify(below)}`);
    }
  }
}

/** That Python answers, an exercise and a figure. If not, a reload helps. */
async function lives(tab, place, note, after) {
  const words = await run(place, "print(1)");
  const printed = await place.locator(".shown").first().textContent();
  const isRun = words === "It printed:" && printed === "1\n";
  if (!isRun) note(`after ${after}: ${words}`);
  const figure = await tab.evaluate((asked) =>
    dpkitPython.call(...asked).catch(String), FIGURE);
  const isShown = figure.includes("<svg");
  if (!isShown) note(`after ${after}: a figure: ${figure}`);
  if (!isRun || !isShown) await tab.reload({ waitUntil: "load" });
}

/** What breaks Python is told, and Python starts afresh. */
async function breaks(tab, place, note) {
  for (const [what, code] of Object.entries(BREAKS)) {
    const words = await run(place, code);
    if (!words.includes("Python broke down")) note(`${what}: ${words}`);
    await lives(tab, place, note, what);
  }
}

/** Lets the page tell, as a promise, when Python prints next. */
const printing = (tab) => tab.evaluateHandle(() => {
  const { call } = dpkitPython;
  const printed = new Promise((done) => {
    dpkitPython.call = (path, sent, { hear, ...options }) =>
      call.call(dpkitPython, path, sent, { ...options, hear(words) {
        hear(words);
        done();
      } });
  });
  return { printed };
});

/** A run can be stopped, long before its time is up. */
async function stops(tab, place, note) {
  const stop = button(place, "Stop");
  if (!await stop.count()) return note("there is no “Stop”");
  if (!await stop.isDisabled()) note("“Stop” offers to stop nothing");
  const heard = await printing(tab);
  await place.locator("textarea").fill(LOOP);
  await button(place, "Run").press("Enter");
  await heard.evaluate(({ printed }) => printed);
  await stop.press("Enter");
  await rest(tab, 1_000);
  const words = await said(place);
  const printed = await place.locator(".shown").first().textContent();
  if (words !== "Stopped.") note(`“Stop”: ${words}`);
  else if (printed !== "so far\n") note(`“Stop” leaves of what was printed: ${printed}`);
  await tab.reload({ waitUntil: "load" }); // to another Python, and call
  await lives(tab, place, note, "“Stop”");
}

/** A loop without an end is ended, and told; a slow start is no such loop. */
async function endless(tab, place, note) {
  await tab.evaluate((seconds) => {
    const { call } = dpkitPython;
    dpkitPython.call = (path, sent, options) =>
      call.call(dpkitPython, path, sent, { ...options, seconds });
  }, SHORT);
  const words = await run(place, LOOP);
  if (!words.includes("loop without an end")) note(`a loop: ${words}`);
}

/** While Python is loaded, the page says how far it is. */
async function loads(tab, place, note) {
  await slowly(tab, async () => {
    await tab.reload({ waitUntil: "load" });
    await place.locator("textarea").fill("print(1)");
    const watched = await watchBar(place);
    await button(place, "Run").press("Enter");
    const isBusy = async () => BUSY.test(await said(place));
    if (!await comesBySteps(watched, isBusy)) {
      note("nothing says how much of Python is loaded");
    }
    const words = await answer(place);
    if (words !== "It printed:") note(`after Python was loaded: ${words}`);
    if (await place.locator("progress").isVisible()) {
      note("Python is loaded, and the page still says how far it is");
    }
  });
}

/** What axe finds in the editor, after an error. */
async function examined(tab, page, place) {
  await run(place, "print(1)\nx = 1 / 0");
  const findings = [];
  for (const view of VIEWS) {
    await show(tab, view);
    findings.push(...await examineAsIs(tab, `${page} (${view.name}, an error)`,
      [".exercise-in-page"]));
  }
  return findings;
}

/** All findings about the editor of a page. */
export async function edit(tab, page, place, note) {
  await byKeys(tab, place, note);
  await undo(tab, place, note);
  await inTwoTabs(tab, place, note);
  await loads(tab, place, note);
  await lines(place, note);
  await says(place, note);
  await breaks(tab, place, note);
  await stops(tab, place, note);
  const findings = await examined(tab, page, place);
  await endless(tab, place, note);
  await tab.evaluate(() => localStorage.clear()); // for the next page
  return findings;
}
