// axe-core finds nothing on a page: in both themes, and on a phone, where
// more scrolls sideways. What is folded is unfolded for it.
import axe from "axe-core";

import { finding, isPrinted } from "./site.mjs";

const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
// The slowest rule is left out where colours are as in another view.
const NO_CONTRAST = { "color-contrast": { enabled: false } };
export const VIEWS = [
  { name: "light", theme: "light", size: DESK, rules: {} },
  { name: "dark", theme: "dark", size: DESK, rules: {} },
  { name: "phone", theme: "light", size: PHONE, rules: NO_CONTRAST },
];
// A part of the book again, on white paper.
const PRINTED = [{ name: "print", theme: "light", size: DESK }];

/** The views to look at. A page of source has nothing of its own on a phone,
 * only a box of code, as any chapter has. */
function viewsOf(page) {
  if (isPrinted(page)) return PRINTED;
  const isSource = page.startsWith("_modules/");
  return VIEWS.filter(({ name }) => !isSource || name !== "phone");
}

/** Opens what is folded. */
export function unfold(tab) {
  return tab.evaluate(() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    all("details").forEach((part) => { part.open = true; });
    all(".toggle-button-hidden").forEach((button) => button.click());
    all("[hidden=until-found]").forEach((part) => { part.hidden = false; });
  });
}

/** Shows the page as one view has it. */
export async function show(tab, { theme, size }) {
  await tab.setViewportSize(size);
  await tab.evaluate(async (name) => {
    document.documentElement.dataset.theme = name;
    await document.fonts.ready;
    // Two frames: what watches the size of boxes has then run.
    const frame = () => new Promise(requestAnimationFrame);
    await frame();
    await frame();
    // What fades in is pale until it has: what runs, and has an end, is ended.
    document.getAnimations()
      .filter(({ playState, playbackRate, effect }) =>
        playState === "running" && playbackRate !== 0 &&
        effect.getComputedTiming().endTime < Infinity)
      .forEach((change) => change.finish());
  }, theme);
}

/** What axe, which the tab holds, finds on a page as it stands. */
async function violations(tab, rules = {}, parts = []) {
  const options = { resultTypes: ["violations"], preload: false, rules };
  const found = await tab.evaluate(([given, include]) =>
    globalThis.axe.run(include.length ? { include } : document, given),
  [options, parts]);
  return found.violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ target }) => `${target.flat().join(" ")}: ${help} [${id}]`));
}

/** The same, as findings; of some parts alone, if there are any given. */
export async function examineAsIs(tab, place, parts = []) {
  await tab.evaluate(axe.source);
  return (await violations(tab, {}, parts)).map((what) =>
    finding("axe", place, what));
}

/** What axe finds in one figure, as it stands, in views by name. */
export async function examineFigure(tab, place, id, names) {
  await tab.evaluate(axe.source);
  const chosen = VIEWS.filter(({ name }) => names.includes(name));
  return inViews(tab, place, chosen, [`#${id}`]);
}

/** What axe finds in any of the views, each thing once. */
export async function examine(tab, page) {
  await tab.evaluate(axe.source);
  await unfold(tab);
  return inViews(tab, page, viewsOf(page));
}

async function inViews(tab, page, chosen, parts = []) {
  const views = new Map(); // in which a violation is seen
  for (const view of chosen) {
    await show(tab, view);
    for (const what of await violations(tab, view.rules, parts)) {
      views.set(what, [...views.get(what) ?? [], view.name]);
    }
  }
  return [...views].map(([what, where]) =>
    finding("axe", `${page} (${where.join("; ")})`, what));
}
