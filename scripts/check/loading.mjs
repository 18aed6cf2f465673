// How a page loads: which files it asks for, and how far its parts jump until
// all are there (the sum of what browsers call layout shifts), on a desk and
// on a phone. The worst case: fonts, and scripts that do not hold up the
// page, come after its first picture.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import { visit } from "./browser.mjs";

const DESK = { viewport: { width: 1280, height: 900 } };
const PHONE = {
  viewport: { width: 390, height: 844 },
  isMobile: true, hasTouch: true, deviceScaleFactor: 2,
};
const REST = 300; // milliseconds, after the last file
const DEFERRED = /<script\b[^>]*\bdefer\b[^>]*\bsrc="([^"]+)"/g;

/** In the page, from its start: adds up how far its parts jump. */
function observe() {
  globalThis.jumped = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) globalThis.jumped += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
}

const isPainted = () =>
  performance.getEntriesByName("first-contentful-paint").length > 0;

/** Lets fonts and deferred scripts wait until the page shows something. */
async function comeLate(tab, address, html) {
  const late = new Set([...html.matchAll(DEFERRED)]
    .map(([, source]) => new URL(source, address).href));
  await tab.route(/\.(js|woff2)\b/, async (route) => {
    const url = route.request().url();
    if (late.has(url) || url.includes(".woff2")) {
      await tab.waitForFunction(isPainted);
    }
    await route.continue();
  });
}

/** Loads a page as if for the first time. */
async function load(tab, address, html) {
  const asked = new Set();
  tab.on("request", (request) => asked.add(request.url()));
  await comeLate(tab, address, html);
  await tab.addInitScript(observe);
  await tab.goto(address, { waitUntil: "networkidle" });
  await tab.waitForTimeout(REST);
  return { asked: [...asked], shift: await tab.evaluate(() => jumped) };
}

/** For each page: the files of its first view, their bytes, its shifts. */
export async function loadings(site, origin, pages) {
  const read = (file) => readFileSync(join(site, file));
  const sizes = new Map();
  const sent = (file) => {
    if (!sizes.has(file)) sizes.set(file, gzipSync(read(file)).length);
    return sizes.get(file);
  };
  const found = new Map(pages.map((page) => [page, { page }]));
  const look = (view) => async (tab, page) => {
    const address = `${origin}/${page}`;
    const { asked, shift } = await load(tab, address, String(read(page)));
    const files = asked.filter((url) => url.startsWith(`${origin}/`))
      .map((url) => decodeURIComponent(new URL(url).pathname.slice(1)));
    const row = found.get(page);
    row[view] = shift;
    row.files ??= new Map(files.map((file) => [file, sent(file)]));
    return [];
  };
  await visit(pages, look("desk"), DESK);
  await visit(pages, look("phone"), PHONE);
  return [...found.values()];
}
