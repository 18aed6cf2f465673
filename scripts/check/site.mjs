// The pages of a built site, and what is said about one that is at fault.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

// Parts of the theme that no reader opens.
const NOT_PAGES = /^_static\/|webpack-macros/;
const ENDINGS = [".ipynb", ".md"];

/** Whether a page is a whole part of the book, to be printed: it has what
 * others have. */
export const isPrinted = (page) => /^print-[\w-]+\.html$/.test(page);

/** The pages, as paths from the root of the site. */
export function pagesOf(site) {
  return readdirSync(site, { recursive: true })
    .filter((path) => path.endsWith(".html") && !NOT_PAGES.test(path))
    .sort();
}

/** The pages that are opened in a browser, one by one: all, but of those that
 * show source, which one template makes, each seventh. */
export function opened(pages) {
  const sources = pages.filter((page) => page.startsWith("_modules/"));
  return pages.filter((page) => sources.indexOf(page) % 7 <= 0); // -1: not one
}

/** The pages, the largest first: what takes longest is not begun last. */
export function largestFirst(site, pages) {
  const sizes = new Map(pages.map((page) => [page, statSync(join(site, page)).size]));
  return [...pages].sort((a, b) => sizes.get(b) - sizes.get(a));
}

/** Whether a page only leads on to another. */
export function leadsOn(site, page) {
  return /http-equiv="?refresh/i.test(readFileSync(join(site, page), "utf-8"));
}

/** The file that a page comes from, in brackets, where it has one. */
export function sourceOf(root, where) {
  const [, name] = /^(\S+)\.html\b/.exec(where) ?? [];
  const file = ENDINGS.map((e) => name + e)
    .find((path) => name && existsSync(join(root, path)));
  return file ? ` [${file}]` : "";
}

/** A finding: which check, where, and what is wrong there. */
export const finding = (check, where, what) => ({ check, where, what });
