// Opens the pages of the site in chromium, several at a time.
import { accessSync, constants } from "node:fs";
import { availableParallelism } from "node:os";
import { delimiter, join } from "node:path";

import { chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];
/** Milliseconds that nothing takes, however busy the machine is. What waits so
 * long has failed. */
export const PATIENCE = 1_800_000;
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update",
  "--disable-sync",
  // What asks another server gets nothing.
  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
  "--no-proxy-server",
];

/** Where chromium lies, if it is on the PATH. */
export function findChromium() {
  const folders = process.env.PATH.split(delimiter);
  const files = folders.flatMap((f) => NAMES.map((name) => join(f, name)));
  return files.find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Closes a tab; what its routes still wait for is no failure. */
async function close(tab) {
  await tab.unrouteAll({ behavior: "ignoreErrors" });
  await tab.close();
}

/** In the page: it gives up 60 times later. Its own limits, such as 20 s for an
 * answer of Python, are for a machine that is not busy. */
function bePatient() {
  const { setTimeout: start } = globalThis;
  globalThis.setTimeout = (act, time, ...given) =>
    start(act, time >= 10_000 ? 60 * time : time, ...given);
}

/** Waits as long as the page's own clock says: all that the page was to do
 * before then is done, however slow it is. */
export const rest = (tab, milliseconds) => tab.evaluate((time) =>
  new Promise((done) => setTimeout(done, time)), milliseconds);

/** Hands each page, in a fresh tab, to `look`; returns all findings. The
 * options are those of a context: whether scripts run, for example. */
export async function visit(pages, look, options = {}) {
  const browser = await chromium.launch({
    executablePath: findChromium(),
    args: FLAGS,
    timeout: PATIENCE,
  });
  const waiting = [...pages];
  const findings = [];
  async function work() {
    const context = await browser.newContext({ reducedMotion: "reduce", ...options });
    context.setDefaultTimeout(PATIENCE);
    await context.addInitScript(bePatient);
    for (let page = waiting.shift(); page; page = waiting.shift()) {
      const tab = await context.newPage();
      findings.push(...await look(tab, page));
      await close(tab);
    }
  }
  try {
    await Promise.all(Array.from({ length: availableParallelism() }, work));
  } finally {
    // After a failure other tabs may still be at work.
    const open = browser.contexts().flatMap((context) => context.pages());
    await Promise.allSettled(open.map(close));
    await browser.close();
  }
  return findings;
}
