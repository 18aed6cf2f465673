// No request leaves the site: neither one that a browser was seen to make,
// nor one that the markup or a style sheet asks for in some other case.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { finding } from "./site.mjs";

const REMOTE = /^(https?:)?\/\//;
const IN_STYLES = /(?:url\(|@import)\s*["']?((?:https?:)?\/\/[^"')\s]+)/g;

/** The line of a script that an error comes from, as the browser names it. */
const placeOf = ({ stack = "" }) =>
  stack.split("\n").find((line) => /^\s*at /.test(line))?.trim() ?? "";

/** Notes what the tab asks for. */
export function watch(tab, page, origin) {
  const findings = [];
  const note = (what) => findings.push(finding("requests", page, what));
  tab.on("request", (request) => {
    const url = request.url();
    if (/^https?:/.test(url) && !url.startsWith(`${origin}/`)) {
      note(`asks another server: ${url}`);
    }
  });
  tab.on("pageerror", (error) => note(`a script fails: ${error.message} ${placeOf(error)}`));
  tab.on("response", (response) => {
    if (response.status() >= 400) {
      note(`asks for what is not there: ${response.url()}`);
    }
  });
  return findings;
}

/** What the markup of the page names to be fetched from elsewhere. */
export async function named(tab, page) {
  const addresses = await tab.evaluate(() => {
    const fetched = ["src", "srcset", "poster", "data"];
    const idle = ["canonical", "next", "prev", "author", "license", "search"];
    // "srcset" lists several, with a comma and a size between them.
    const named = [...document.querySelectorAll("*")].flatMap((tag) =>
      fetched.flatMap((name) => tag.getAttribute(name)?.split(/,?\s+/)));
    const links = [...document.querySelectorAll("link[href]")]
      .filter((link) => !idle.includes(link.rel));
    return [...named, ...links.map((link) => link.getAttribute("href"))];
  });
  return addresses.filter((address) => REMOTE.test(address ?? ""))
    .map((address) =>
      finding("requests", page, `names another server: ${address}`));
}

/** What the style sheets of the site fetch from elsewhere. */
export function styled(root) {
  const sheets = readdirSync(root, { recursive: true })
    .filter((path) => path.endsWith(".css"));
  return sheets.flatMap((path) =>
    [...readFileSync(join(root, path), "utf-8").matchAll(IN_STYLES)]
      .map(([, address]) =>
        finding("requests", path, `names another server: ${address}`)));
}
