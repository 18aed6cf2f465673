// How a page loads: which files it asks for, whether anything on it uses them,
// and how far its parts jump until all are there (the sum of what browsers
// call layout shifts), on a desk and on a phone. The worst case: fonts,
// pictures, and scripts that do not hold up the page, come after its first
// picture. Some readers come to a live figure in the middle of a page: what
// folds above it must be folded from the start.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import { visit } from "./browser.mjs";
import { finding, isPrinted } from "./site.mjs";

const VIEWS = {
  desk: { viewport: { width: 1280, height: 900 } },
  phone: {
    viewport: { width: 390, height: 844 },
    isMobile: true, hasTouch: true, deviceScaleFactor: 2,
  },
};
const MOST_JUMPED = 0.05;
// Fonts that come late wrap the lines of all that stands above a figure.
const MOST_JUMPED_ABOVE = 0.4;
const MOST_SHARED = 100_000; // bytes that are sent for every page
const REST = 300; // milliseconds, after the last file
const DEFERRED = /<script\b[^>]*\bdefer\b[^>]*\bsrc="([^"]+)"/g;
const LIVE = /<figure class="live[^"]*" id="([^"]+)"/g;

// What scripts are for, by the beginning of a name; others are for every page.
const SERVES = {
  "auto-render": ".math", "katex": ".math",
  "clipboard": ".highlight pre", "copybutton": ".highlight pre",
  "design-tabs": ".sd-tab-set",
  "engine": ".live, .exercise-in-page",
  "exercises": ".exercise-in-page",
  "figure": ".live",
  "fontawesome": "svg.svg-inline--fa",
  "language_data": "#search-results", "searchindex": "#search-results",
  "searchtools": "#search-results",
  "words": "#search-results", "rank": "#search-results",
  "predict": ".predict",
  "steps": ".live-steps",
  "togglebutton": ".toggle, .dropdown",
};

/** In the page, from its start: adds up how far its parts jump. */
function observe() {
  globalThis.jumped = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) globalThis.jumped += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
}

const isPainted = () =>
  performance.getEntriesByName("first-contentful-paint").length > 0;

/** In the page: the style sheets of which no rule has an element in it, in
 * some state: on paper, or under the pointer. */
function idleSheets() {
  const states = /::?(hover|focus|active|focus-visible|focus-within|visited|before|after|placeholder|marker)\b/g;
  const meets = (rule) => {
    const inside = rule.styleSheet?.cssRules ?? rule.cssRules;
    if (inside?.length) return [...inside].some(meets);
    if (!rule.selectorText) return false;
    try {
      return document.body.querySelector(rule.selectorText.replace(states, "")) !== null;
    } catch {
      return false; // of a selector that is nothing without its state
    }
  };
  return [...document.styleSheets]
    .filter((sheet) => sheet.href && ![...sheet.cssRules].some(meets))
    .map((sheet) => new URL(sheet.href).pathname.slice(1));
}

/** Lets files wait until the page shows something. */
async function comeLate(tab, address, html) {
  const late = new Set([...html.matchAll(DEFERRED)]
    .map(([, source]) => new URL(source, address).href));
  await tab.route(/\.(js|woff2?|svg|png)\b/, async (route) => {
    const url = route.request().url();
    if (late.has(url) || !/\.js\b/.test(url)) await tab.waitForFunction(isPainted);
    await route.continue();
  });
}

/** Opens an address, and waits for all that comes with it. While a slow machine
 * reads a page, it may ask for nothing for so long that the network seems idle:
 * the scripts of the page have run only when it is loaded. */
async function settle(tab, address) {
  await tab.goto(address, { waitUntil: "load" });
  await tab.waitForLoadState("networkidle");
  await tab.evaluate(() => new Promise(requestIdleCallback));
  await tab.waitForTimeout(REST);
}

/** Loads a page as if for the first time. */
async function load(tab, address, html) {
  const asked = new Set();
  tab.on("request", (request) => asked.add(request.url()));
  await comeLate(tab, address, html);
  await tab.addInitScript(observe);
  await settle(tab, address);
  const jumped = await tab.evaluate(() => globalThis.jumped);
  return { asked: [...asked], jumped };
}

/** The files of a page for which nothing on it has a use. */
async function idleFiles(tab, files) {
  const served = (file) => {
    const name = file.split("/").pop();
    return Object.entries(SERVES).find(([start]) => name.startsWith(start))?.[1];
  };
  const scripts = files.filter((file) => file.endsWith(".js") && served(file));
  const idle = await tab.evaluate((pairs) =>
    pairs.filter(([, use]) => !document.querySelector(use)).map(([file]) => file),
  scripts.map((file) => [file, served(file)]));
  return [...idle, ...await tab.evaluate(idleSheets)];
}

/** The pages that are loaded: of those that show source, one. */
function chosen(pages) {
  const source = pages.find((page) => page.startsWith("_modules/"));
  return pages.filter((page) =>
    page === source || !(page.startsWith("_modules/") || isPrinted(page)));
}

/** For each page: its files, with their bytes as they are sent; the idle ones
 * among them; and how far it jumps in each view. */
export async function loadings(site, origin, pages) {
  const read = (file) => readFileSync(join(site, file));
  const sizes = new Map();
  const sent = (file) => {
    if (!sizes.has(file)) sizes.set(file, gzipSync(read(file)).length);
    return sizes.get(file);
  };
  const found = new Map(chosen(pages).map((page) => [page, { page, landed: [] }]));
  const look = (view) => async (tab, page) => {
    const row = found.get(page);
    const html = String(read(page));
    const { asked, jumped } = await load(tab, `${origin}/${page}`, html);
    row[view] = jumped;
    if (!row.files) {
      const files = asked.filter((url) => url.startsWith(`${origin}/`))
        .map((url) => decodeURIComponent(new URL(url).pathname.slice(1)));
      row.files = new Map(files.map((file) => [file, sent(file)]));
      row.idle = await idleFiles(tab, files);
    }
    for (const [, id] of html.matchAll(LIVE)) {
      await tab.goto("about:blank");
      await settle(tab, `${origin}/${page}#${id}`);
      const jumped = await tab.evaluate(() => globalThis.jumped);
      row.landed.push([view, id, jumped]);
    }
    return [];
  };
  for (const [view, options] of Object.entries(VIEWS)) {
    await visit([...found.keys()], look(view), options);
  }
  return [...found.values()];
}

/** The files that all pages have in common, with their bytes. */
export function shared(rows) {
  const [first, ...others] = rows;
  return new Map([...first.files].filter(([file]) =>
    others.every(({ files }) => files.has(file))));
}

const total = (files) => [...files.values()].reduce((sum, size) => sum + size, 0);

/** What is said of the files that all pages have in common. */
export function sharedWords(rows) {
  const files = shared(rows);
  return `every page: ${files.size} files, ${total(files)} bytes sent`;
}

/** What is wrong with how pages load. */
export function judge(rows) {
  const findings = rows.flatMap(({ page, idle, landed, ...row }) => [
    ...idle.map((file) =>
      finding("weight", page, `nothing on it uses ${file}`)),
    ...Object.keys(VIEWS).filter((view) => row[view] > MOST_JUMPED)
      .map((view) => finding("loading", page,
        `its parts jump by ${row[view].toFixed(3)} (${view}), more than ${MOST_JUMPED}`)),
    ...landed.filter(([, , jumped]) => jumped > MOST_JUMPED_ABOVE)
      .map(([view, id, jumped]) => finding("loading", page,
        `who comes to #${id} sees parts jump by ${jumped.toFixed(3)} (${view}), more than ${MOST_JUMPED_ABOVE}`)),
  ]);
  const bytes = total(shared(rows));
  if (bytes > MOST_SHARED) {
    findings.push(finding("weight", "every page",
      `${bytes} bytes sent, more than ${MOST_SHARED}`));
  }
  return findings;
}

/** A line for each page: its requests, its bytes, its jumps. */
export const lines = (rows) => rows.map(({ page, files, desk, phone }) =>
  [page, files.size, total(files), desk.toFixed(3), phone.toFixed(3)].join("\t"));
