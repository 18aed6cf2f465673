// The prose is spelt as in Britain; words.txt holds the words of the field.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { spellCheckDocument } from "cspell-lib";

import { prose } from "./prose.mjs";
import { finding } from "./site.mjs";

const WORDS = new URL("words.txt", import.meta.url);

// A fence whose words are prose: the text of an exercise, say.
const OF_PROSE =
  /^( *)(`{3,}|~{3,})\{(?!eval-rst|math|solution)[\w-]+\}(.*\n)([\s\S]*?)^\1\2 *$/gm;

// What in Markdown or a docstring is not prose.
const NOT_PROSE = [
  /^( *)(`{3,}|~{3,}).*\n[\s\S]*?^\1\2/gm, // blocks of code
  /^ *(>>>|\.\.\. ).*$/gm, // examples
  /(`+)[^`][\s\S]*?\1/g, // code, and the targets of roles
  /\$\$[\s\S]*?\$\$|\$[^$]+\$/g, // formulas
  /^ +\*{0,2}\w+( \(.*?\))?:/gm, // the names of arguments
  /"CUDA Op-Specific Behavior"/g, // a title
  /['’]s\b/g,
  /\{[\w:-]+\}/g, // the names of roles
  /\]\([^)\s]*\)/g, // the targets of links
  /<[^>\n]*>/g,
  /https?:\S+/g,
  /[\w./-]+\.(py|ipynb|md|json|yml|toml|cff|js|css|html)\b/g,
  /\w*_\w+|\w+\(\)/g, // names in code
  /^:[\w-]+:.*$/gm, // options of directives
  /^\([\w-]+\)=$/gm, // labels
];

export async function spell(root) {
  const words = readFileSync(WORDS, "utf-8").split("\n").filter(Boolean);
  const settings = {
    words,
    dictionaries: ["en-gb"],
    ignoreRegExpList: NOT_PROSE,
    language: "en-GB",
    loadDefaultConfiguration: true,
  };
  const findings = [];
  for (const { text: written, place } of prose(root)) {
    const text = written.replace(OF_PROSE, "$3$4");
    const file = { uri: "prose.txt", text, languageId: "plaintext" };
    const options = { generateSuggestions: false, noConfigSearch: true };
    const { issues } = await spellCheckDocument(file, options, settings);
    for (const { text: word, offset } of issues) {
      const line = text.slice(0, offset).split("\n").length;
      findings.push(finding("spelling", place(line), `unknown: ${word}`));
    }
  }
  return findings;
}
