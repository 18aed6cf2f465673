// The pages are valid HTML, by the rules in html-validate.json. Two are wider
// than the standard: MyST-NB puts a paragraph on the lid of a folded cell
// (summary), and a picture that a cell returns brings its own style.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { HtmlValidate } from "html-validate";

import { finding } from "./site.mjs";

const RULES = new URL("html-validate.json", import.meta.url);

export async function validate(root, pages) {
  const config = JSON.parse(readFileSync(RULES, "utf-8"));
  const checker = new HtmlValidate({ root: true, ...config });
  const findings = [];
  for (const page of pages) {
    const text = readFileSync(join(root, page), "utf-8");
    const report = await checker.validateString(text, page);
    for (const { messages } of report.results) {
      for (const { line, ruleId, message, selector } of messages) {
        const place = `${page}:${line}${selector ? ` (${selector})` : ""}`;
        findings.push(finding("html", place, `${message} [${ruleId}]`));
      }
    }
  }
  return findings;
}
