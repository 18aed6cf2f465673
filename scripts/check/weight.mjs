// No page is heavier than a megabyte, counted as the HTML that is sent. The
// one that is the whole book, to be printed, is not counted.
import { statSync } from "node:fs";
import { join } from "node:path";

import { finding, PRINT } from "./site.mjs";

const MOST = 1_000_000;

/** The pages that count, each with its bytes. */
function weights(site, pages) {
  return pages
    .filter((page) => page !== PRINT)
    .map((page) => ({ page, bytes: statSync(join(site, page)).size }));
}

export function weigh(site, pages) {
  return weights(site, pages)
    .filter(({ bytes }) => bytes > MOST)
    .map(({ page, bytes }) =>
      finding("weight", page, `${bytes} bytes, more than ${MOST}`));
}

export function heaviest(site, pages) {
  const [{ page, bytes }] = weights(site, pages)
    .sort((a, b) => b.bytes - a.bytes);
  return `${page}: ${bytes} bytes`;
}
