// Which pages are looked at in the browser: all of them; with SINCE=commit,
// those that differ from it; else with SEED=number, a third, and three numbers
// in a row see all but those to print, which have what others have.
//
// A page differs where a file differs that it is made of: its text; the code
// of the book in the folder of its name; for the reference and for a page of
// source, that source; for the search, any text. What pages run in the browser,
// all pages run that have a live figure or an exercise. Where a file differs
// that all pages are made of, or that looks at them, all are looked at: one that
// differs from the commit, or for a seed from the commit before the last.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { isPrinted, opened } from "./site.mjs";

const PARTS = 3;
const OF_ALL = new RegExp(`^(?:${[
  "book/_(?:extensions|static|templates)/", "_config.yml", "requirements.txt",
  "scripts/check/(?!\\w+\\.(?:py|toml)$)", // those read text, and open no page
  "scripts/pages/(?:pyodide/|(?:build_site|pack_python|print_page|search_index|slim_site).py)",
].join("|")})`);
// As in scripts/pages/pack_python.py; and what its answers are compared with.
const RUN_IN_PAGES = new RegExp(`^(?:${[
  "dpkit/(?:plans|schedules|sim/(?:clock|hardware|timeline))/",
  "dpkit/(?:lazy|least_squares|tables|units).py", "book/dpbook/(?:exercises|explore|formulas|planner|plans)/",
  "scripts/check/live_answers.py", "tests/book/wrong_answers/",
].join("|")})`);
const RUNS = /<figure class="live|class="exercise-in-page"/g;

/** How much of a page runs in the browser: its figures and its exercises. */
const running = (site, page) =>
  [...readFileSync(join(site, page), "utf-8").matchAll(RUNS)].length;

/** The files that differ from a commit, or nothing if there is no such. */
export function differing(root, commit) {
  const git = (...words) =>
    execFileSync("git", ["-C", root, ...words], { stdio: ["ignore", "pipe", "ignore"] })
      .toString().split(/[\0\n]/).filter(Boolean);
  try {
    const [known] = git("rev-parse", "--verify", `${commit}^{commit}`);
    return [
      ...git("diff", "--name-only", "--relative", "-z", known),
      ...git("ls-files", "--others", "--exclude-standard", "-z"),
    ];
  } catch {
    return undefined;
  }
}

/** The page of reference that describes a module of the library. */
function reference(module) {
  if (module.startsWith("dpkit/sim/")) return "book/api-simulated.html";
  if (module.startsWith("dpkit/runs/")) return "book/api-runs.html";
  return "book/api.html";
}

/** The pages that are made of a file, apart from what they run. */
export function madeOf(file) {
  const [, text] = /^book\/([\w-]+)\.(?:ipynb|md)$/.exec(file) ?? [];
  const [, room] = /^book\/dpbook\/(\w+)\//.exec(file) ?? [];
  const [, module] = /^(dpkit\/.+?)(?:\/__init__)?\.py$/.exec(file) ?? [];
  return [
    ...text ? [`book/${text}.html`, "search.html"] : [],
    ...room ? [`book/${room.replaceAll("_", "-")}.html`] : [],
    ...module ? [`_modules/${module}.html`, reference(module)] : [],
  ];
}

/** Those of some pages that differ where these files do. */
function changed(site, pages, files) {
  const found = new Set(files.flatMap(madeOf));
  const isRun = files.some((file) => RUN_IN_PAGES.test(file));
  return pages.filter((page) =>
    found.has(page) || (isRun && running(site, page) > 0));
}

/** Each third page. What runs much takes long, so that is dealt out first. */
function third(site, pages, seed) {
  const weights = new Map(pages.map((page) => [page, running(site, page)]));
  return pages.filter((page) => !isPrinted(page)).sort((a, b) => weights.get(b) - weights.get(a))
    .filter((_, i) => i % PARTS === seed % PARTS).sort();
}

/** The pages that are opened, and why these, in words; or what is at fault. */
export function choose(root, site, pages, { SINCE = "", SEED = "" }) {
  const all = (why) => ({ chosen: opened(pages), why });
  if (!SINCE && !SEED) return all("all");
  if (!/^\d*$/.test(SEED)) return { fault: `no whole number (SEED: ${SEED})` };
  const base = SINCE || "HEAD~1";
  const files = differing(root, base);
  if (!files && SINCE) return { fault: `no such commit (SINCE: ${SINCE})` };
  if (!files) return all("all, as there is no commit before the last");
  const ofAll = files.find((file) => OF_ALL.test(file));
  if (ofAll) return all(`all, as ${ofAll} differs from ${base}`);
  const [chosen, why] = SINCE ?
    [opened(changed(site, pages, files)), `what differs from ${SINCE}`] :
    [third(site, opened(pages), Number(SEED)), `a third (SEED: ${SEED})`];
  return { chosen, why: `${why}: ${chosen.join(" ") || "none"}` };
}
