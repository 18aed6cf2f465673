// Looks at every page of a built site, and at the prose it was built from.
// Usage: node main.mjs [ROOT [PYTHON]]: the folder that holds _build/html and
// book, and the Python that is asked what live figures show.
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";

import { examine } from "./axe.mjs";
import { visit } from "./browser.mjs";
import { solve } from "./exercises.mjs";
import { validate } from "./html.mjs";
import { follow } from "./links.mjs";
import { touch } from "./live.mjs";
import { judge, loadings, sharedWords } from "./loading.mjs";
import { followMoved } from "./moved.mjs";
import { onPhone } from "./phone.mjs";
import { nameless } from "./pictures.mjs";
import { lightest, predict, predictWithoutScript } from "./predict.mjs";
import { named, styled, watch } from "./requests.mjs";
import { openSearch } from "./search.mjs";
import { serve } from "./server.mjs";
import { leadsOn, opened, pagesOf, PRINT, sourceOf } from "./site.mjs";
import { spell } from "./spelling.mjs";
import { heaviest, maps, weigh, weighLive } from "./weight.mjs";

const root = resolve(process.argv[2] ?? ".");
const python = process.argv[3] ?? "python3";
const site = join(root, "_build", "html");

/** What one page shows in the browser. */
const look = (origin, pages, looked) => async (tab, page) => {
  const searched = pages.includes("search.html");
  const asked = watch(tab, page, origin);
  await tab.goto(`${origin}/${page}`, { waitUntil: "load" });
  const findings = [
    ...await named(tab, page),
    ...await nameless(tab, page),
    ...await predict(tab, page, origin, looked.includes(page)),
    ...await examine(tab, page),
    ...await onPhone(tab, page),
    ...await followMoved(tab, page, origin),
    ...searched && page !== PRINT ? await openSearch(tab, page, pages) : [],
  ];
  return [...findings, ...asked];
};

async function timed(name, check) {
  const start = performance.now();
  const findings = await check();
  const seconds = (performance.now() - start) / 1000;
  for (const { check: kind, where, what } of findings) {
    const source = sourceOf(root, where);
    console.log(`${kind}: ${where}${source}: ${what}`);
  }
  const count = `${findings.length} finding${findings.length === 1 ? "" : "s"}`;
  console.log(`${name}: ${count}, ${seconds.toFixed(0)} s`);
  return findings.length;
}

async function main() {
  if (!existsSync(site)) {
    console.error(`no site is built (folder: ${site})\nRun make book first.`);
    return 2;
  }
  const { origin, server } = await serve(site);
  const pages = pagesOf(site);
  const shown = pages.filter((page) => !leadsOn(site, page));
  const looked = lightest(site, shown, 1);
  let rows = [];
  const counts = [
    await timed("weight", () =>
      [...weigh(site, pages), ...weighLive(site), ...maps(site)]),
    await timed("loading", async () => {
      rows = await loadings(site, origin, shown);
      return judge(rows);
    }),
    await timed("html", () => validate(site, pages)),
    await timed("links", () => follow(origin, pages)),
    await timed("style sheets", () => styled(site)),
    await timed("axe, pictures, phone, predictions, moved sections, requests", () => visit(opened(shown), look(origin, pages, looked))),
    await timed("no script", () => predictWithoutScript(origin, looked)),
    await timed("live figures", () => touch(site, origin, shown, python)),
    await timed("exercises", () => solve(root, site, origin, shown)),
    await timed("spelling", () => spell(root)),
  ];
  server.close();
  server.closeAllConnections();
  const total = counts.reduce((sum, count) => sum + count, 0);
  console.log(sharedWords(rows));
  console.log(`${pages.length} pages, the heaviest ${heaviest(site, pages)}`);
  console.log(total === 0 ? "nothing found" : `found in all: ${total}`);
  return total === 0 ? 0 : 1;
}

process.exitCode = await main();
