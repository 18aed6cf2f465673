// Opens the pages of the site in chromium, several at a time.
import { accessSync, constants } from "node:fs";
import { availableParallelism } from "node:os";
import { delimiter, join } from "node:path";

import { chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];
const PATIENCE = 120_000; // milliseconds, for a slow machine
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

/** Hands each page, in a fresh tab, to `look`; returns all findings. The
 * options are those of a context: whether scripts run, for example. */
export async function visit(pages, look, options = {}) {
  const browser = await chromium.launch({
    executablePath: findChromium(),
    args: FLAGS,
  });
  const waiting = [...pages];
  const findings = [];
  async function work() {
    const context = await browser.newContext({ reducedMotion: "reduce", ...options });
    context.setDefaultTimeout(PATIENCE);
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
