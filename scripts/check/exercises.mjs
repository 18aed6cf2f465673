// Exercises in the page: the stub is refused, the solution solves, and each
// wrong answer of tests/book/wrong_answers is refused with its reason. And no
// notebook that a page hands out holds a solution.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

import { visit } from "./browser.mjs";
import { check, edit, hasPython, press } from "./editor.mjs";
import { finding, isPrinted } from "./site.mjs";

const HERE = resolve(import.meta.dirname, "..", "..");
const PLACE = 'class="exercise-in-page"';

const nameOf = (code) => [...code.matchAll(/^def (\w+)/gm)].at(-1)?.[1];

/** The wrong answers: {name, code, why}. */
function wrongAnswers() {
  const folder = join(HERE, "tests", "book", "wrong_answers");
  return readdirSync(folder).filter((f) => f.endsWith(".py")).flatMap((file) => {
    const parts = readFileSync(join(folder, file), "utf-8")
      .split(/^# refused: (.*)\n/m).slice(1);
    return parts.flatMap((why, i) => i % 2 ? [] :
      [{ name: nameOf(parts[i + 1]), code: parts[i + 1], why }]);
  });
}

/** What the cells with a tag hold, in the notebook of a page. */
function tagged(root, page, tag) {
  const path = join(root, page.replace(/html$/, "ipynb"));
  const { cells } = JSON.parse(readFileSync(path, "utf-8"));
  return Object.fromEntries(cells
    .filter(({ metadata }) => metadata.tags?.includes(tag))
    .map(({ source }) => [source].flat().join(""))
    .map((code) => [nameOf(code), code]));
}

const look = (root, origin, wrong, counted, edited) => async (tab, page) => {
  const findings = [];
  const note = (what) => findings.push(finding("exercises", page, what));
  tab.on("pageerror", (error) => note(`a script fails: ${error.message}`));
  await tab.goto(`${origin}/${page}`, { waitUntil: "load" });
  if (!await hasPython(tab)) {
    note("there is no Python on it: npm and node pack it");
    return findings;
  }
  const [stubs, solutions] =
    ["stub", "solution"].map((tag) => tagged(root, page, tag));
  const places = await tab.locator(".exercise-in-page").all();
  for (const place of places) {
    const name = await place.getAttribute("data-exercise");
    const expect = (said, words, what) => {
      if (!said.includes(words)) note(`${name}: ${what}: ${said}`);
      counted.answers += 1;
    };
    expect(await press(place, "Check"), "Not yet: ", "the stub");
    for (const { code, why } of wrong.filter((w) => w.name === name)) {
      expect(await check(place, code), why, `not refused by “${why}”`);
    }
    const imports = stubs[name].split("def ")[0];
    const solved = await check(place, `${imports}\n${solutions[name]}`);
    expect(solved, "Solved.", "the solution");
  }
  if (edited.includes(page)) findings.push(...await edit(tab, page, places[0], note));
  return findings;
};

/** The notebooks that the download buttons lead to. */
function downloads(site) {
  const folder = join(site, "_sources", "book");
  if (!existsSync(folder)) return [];
  return readdirSync(folder).filter((f) => f.endsWith(".ipynb"))
    .filter((f) => /solution-(start|end)|"solution"/
      .test(readFileSync(join(folder, f), "utf-8")))
    .map((f) => finding("exercises", f, "its download holds a solution"));
}

/** One of the pages for each script that makes an editor. */
function onePerScript(site, pages) {
  const script = (page) => resolve(join(site, page), "..",
    /[^"]*exercises\.js/.exec(readFileSync(join(site, page), "utf-8"))[0]);
  return [...new Map(pages.map((page) => [script(page), page])).values()];
}

/** All findings about exercises in the page. */
export async function solve(root, site, origin, pages) {
  const there = pages.filter((page) => !isPrinted(page) &&
    readFileSync(join(site, page), "utf-8").includes(PLACE));
  const wrong = wrongAnswers(), counted = { answers: 0 };
  const findings = downloads(site);
  if (there.length > 0) {
    findings.push(...await visit(there,
      look(root, origin, wrong, counted, onePerScript(site, there))));
  }
  console.log(`exercises: ${counted.answers} answers on ${there.length} pages`);
  return findings;
}
