// Looks at every page of a built site, and at the prose it was built from.
// Usage: node main.mjs [ROOT [PYTHON [CHECK ...]]]: the folder that holds
// _build/html and book, the Python that is asked what live figures show, and
// the checks that are run: all, if none is named. What needs no browser sees
// every page; SINCE and SEED choose those that are opened (choice.mjs).
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";

import { examine } from "./axe.mjs";
import { visit } from "./browser.mjs";
import { choose } from "./choice.mjs";
import { solve } from "./exercises.mjs";
import { validate } from "./html.mjs";
import { follow } from "./links.mjs";
import { touch } from "./live.mjs";
import { judge, loadings, sharedWords } from "./loading.mjs";
import { onPhone } from "./phone.mjs";
import { nameless } from "./pictures.mjs";
import { lightest, predict, predictWithoutScript } from "./predict.mjs";
import { named, styled, watch } from "./requests.mjs";
import { openSearch } from "./search.mjs";
import { serve } from "./server.mjs";
import { isPrinted, largestFirst, leadsOn, pagesOf, sourceOf } from "./site.mjs";
import { spell } from "./spelling.mjs";
import { heaviest, maps, weigh, weighLive } from "./weight.mjs";

const root = resolve(process.argv[2] ?? ".");
const python = process.argv[3] ?? "python3";
const site = join(root, "_build", "html");
const wanted = process.argv.slice(4);

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
    ...searched && !isPrinted(page) ? await openSearch(tab, page, pages) : [],
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

/** The checks by name. `rows` gets what is learned of how pages load. */
function checksOf(site, origin, pages, shown, chosen, rows) {
  const looked = lightest(site, chosen, 1);
  // What all pages load is seen on the smallest ones, whichever are chosen.
  const smallest = largestFirst(site, shown).slice(-3);
  return {
    weight: () =>
      [...weigh(site, pages), ...weighLive(site), ...maps(site)],
    loading: async () => {
      rows.push(...await loadings(site, origin,
        [...new Set([...chosen, ...smallest])]));
      return judge(rows);
    },
    html: () => validate(site, pages),
    links: () => follow(origin, pages),
    styles: () => styled(site),
    // axe, pictures, phone, predictions, requests, search
    looks: () => visit(largestFirst(site, chosen), look(origin, pages, looked)),
    unscripted: () => predictWithoutScript(origin, looked),
    live: () => touch(site, origin, chosen, python),
    exercises: () => solve(root, site, origin, chosen),
    spelling: () => spell(root),
  };
}

/** Says why nothing can be checked. */
function refuse(words) {
  console.error(words);
  return 2;
}

async function main() {
  if (!existsSync(site)) {
    return refuse(`no site is built (folder: ${site})\nRun make book first.`);
  }
  const pages = pagesOf(site);
  const shown = pages.filter((page) => !leadsOn(site, page));
  const { chosen, why, fault } = choose(root, site, shown, process.env);
  if (fault) return refuse(fault);
  const { origin, server } = await serve(site);
  const rows = [];
  const checks = checksOf(site, origin, pages, shown, chosen, rows);
  const names = wanted.length ? wanted : Object.keys(checks);
  const unknown = names.filter((name) => !checks[name]);
  let total = 0;
  if (!unknown.length) {
    console.log(`opened: ${chosen.length} of ${pages.length} pages, ${why}`);
  }
  for (const name of unknown.length ? [] : names) {
    total += await timed(name, checks[name]);
  }
  server.close();
  server.closeAllConnections();
  if (unknown.length) {
    return refuse(`no such check (named: ${unknown}, known: ${Object.keys(checks)})`);
  }
  if (rows.length) console.log(sharedWords(rows));
  console.log(`${pages.length} pages, the heaviest ${heaviest(site, pages)}`);
  console.log(total === 0 ? "nothing found" : `found in all: ${total}`);
  return total === 0 ? 0 : 1;
}

process.exitCode = await main();
