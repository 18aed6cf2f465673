// Looks at some pages in a second browser, Firefox: that nothing fails, that
// nothing is wider than the screen, that icons and formulas are there, that a
// live figure and the search answer.
// Usage, after make book: node check.mjs ROOT
import { accessSync, constants } from "node:fs";
import { delimiter, join, resolve } from "node:path";

import puppeteer from "puppeteer-core";

import { serve } from "../check/server.mjs";

const NAMES = ["firefox-esr", "firefox"];
const PAGES = [
  "book/index", "book/devices", "book/collectives", "book/splitting",
  "book/plan-a-run", "book/museum", "book/notation", "search", "404",
].map((name) => `${name}.html`);
const SIZES = { desk: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };
const PATIENCE = 30_000; // milliseconds

const root = resolve(process.argv[2] ?? ".");
const { origin, server } = await serve(join(root, "_build", "html"));
const findings = [];
const note = (page, what) => findings.push(`firefox: ${page}: ${what}`);

function findFirefox() {
  const files = process.env.PATH.split(delimiter)
    .flatMap((folder) => NAMES.map((name) => join(folder, name)));
  return files.find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Opens a page; notes scripts that fail and files that are not there. */
async function open(browser, page, size) {
  const tab = await browser.newPage();
  await tab.setViewport(size);
  tab.on("pageerror", (error) => note(page, `a script fails: ${error.message}`));
  tab.on("response", (response) => {
    if (response.status() >= 400) note(page, `not there: ${response.url()}`);
  });
  await tab.goto(`${origin}/${page}`, { waitUntil: "load" });
  return tab;
}

/** A page as it stands, in each theme. */
async function look(tab, page, view) {
  for (const theme of ["light", "dark"]) {
    const wrong = await tab.evaluate(async (name) => {
      document.documentElement.dataset.theme = name;
      await document.fonts.ready;
      const { scrollWidth } = document.documentElement;
      const icon = document.querySelector(".fa-solid");
      const shown = getComputedStyle(icon, "::before").fontFamily;
      const loaded = [...document.fonts].some(({ family, status }) =>
        /Font Awesome/.test(family) && status === "loaded");
      return [
        scrollWidth > innerWidth && `${scrollWidth} pixels wide`,
        !(/Font Awesome/.test(shown) && loaded) && "no font of icons",
        document.body.textContent.includes("\\frac{") &&
          !document.querySelector(".katex") && "formulas are not set",
      ].filter(Boolean);
    }, theme);
    wrong.forEach((what) => note(page, `${what} (${theme}, ${view})`));
  }
}

/** The first slider of a live figure changes what it shows. */
async function touch(tab, page, view) {
  const figure = await tab.$("figure.live:has(.live-controls input[type=range])");
  if (!figure) return;
  await tab.evaluate(() => { // a figure may be the answer of a Predict box
    for (const part of document.querySelectorAll("[hidden=until-found]")) part.hidden = false;
  });
  const [slider, shown, beside] = await figure.evaluate((box) => {
    const [side, pictures] = [".live-controls", ".live-pictures"]
      .map((part) => box.querySelector(part).getBoundingClientRect());
    return [".live-controls input[type=range]", box.querySelector(".live-sentence").textContent,
      side.right <= pictures.left];
  });
  if (view === "desk" && !beside) note(page, "controls are not beside their picture");
  await (await figure.$(slider)).focus();
  await tab.keyboard.press("ArrowRight");
  const changed = await tab.waitForFunction((before) =>
    document.querySelector("figure.live:has(.live-controls input[type=range]) .live-sentence").textContent !== before,
  { timeout: PATIENCE }, shown).catch(() => null);
  if (!changed) note(page, `a slider changes nothing (${view})`);
  if (view !== "phone") return;
  const top = await figure.evaluate((box) => {
    box.querySelector(".live-pictures").scrollIntoView({ block: "center" });
    return box.querySelector(".live-touched")?.getBoundingClientRect().top ?? -1;
  });
  if (top < 0) note(page, "the control that was moved is out of view");
}

/** The search finds the chapter. */
async function search(tab) {
  await tab.goto(`${origin}/search.html?q=tensor+parallelism`);
  const first = await tab.waitForSelector("#search-results li a", { timeout: PATIENCE })
    .then((link) => link.evaluate((a) => a.pathname)).catch(() => "nothing");
  if (!first.endsWith("layer-partitioning.html")) note("search.html", `finds ${first} first`);
}

const executablePath = findFirefox();
if (!executablePath) {
  console.log("SKIPPED, no page was looked at (no Firefox on the PATH)");
  process.exit(process.env.CI === "true" ? 1 : 0);
}
const browser = await puppeteer.launch({ browser: "firefox", executablePath, headless: true });
try {
  for (const [view, size] of Object.entries(SIZES)) {
    for (const page of PAGES) {
      const tab = await open(browser, page, size);
      await look(tab, page, view);
      await touch(tab, page, view);
      if (page === "search.html") await search(tab);
      await tab.close();
    }
  }
} finally {
  await browser.close();
  server.close();
  server.closeAllConnections();
}
findings.forEach((line) => console.log(line));
console.log(`firefox: ${PAGES.length} pages, ${findings.length} findings`);
process.exitCode = findings.length ? 1 : 0;
