// The prose is spelt as in Britain. What is no prose, and which words the
// field has, is said in cspell.json and words.txt. cspell alone could not say
// in which cell of a notebook a word is, nor tell docstrings from code.
import { fileURLToPath } from "node:url";

import { spellCheckDocument } from "cspell-lib";

import { prose } from "./prose.mjs";
import { finding } from "./site.mjs";

const OPTIONS = {
  configFile: fileURLToPath(new URL("cspell.json", import.meta.url)),
  generateSuggestions: false,
};

// A fence whose words are prose: the text of an exercise, say.
const OF_PROSE =
  /^( *)(`{3,}|~{3,})\{(?!eval-rst|math|solution)[\w-]+\}(.*\n)([\s\S]*?)^\1\2 *$/gm;

export async function spell(root) {
  const findings = [];
  for (const { text: written, place } of prose(root)) {
    const text = written.replace(OF_PROSE, "$3$4");
    const file = { uri: "prose.txt", text, languageId: "plaintext" };
    const { issues } = await spellCheckDocument(file, OPTIONS, {});
    for (const { text: word, offset } of issues) {
      const line = text.slice(0, offset).split("\n").length;
      findings.push(finding("spelling", place(line), `unknown: ${word}`));
    }
  }
  return findings;
}
