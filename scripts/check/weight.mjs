// No page is heavier than a megabyte, counted as the HTML that is sent. Those
// that are a part of the book, to be printed, are not counted. What live figures
// load is counted as it is sent, compressed. No file is there for developers
// of the theme alone.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import { finding, isPrinted } from "./site.mjs";

const MOST = 1_000_000;
const LIVE = "_static/live";
// Bytes that may be sent, by the beginning of a path.
const MOST_SENT = {
  [`${LIVE}/figure.js`]: 4_608,
  [`${LIVE}/python.js`]: 5_000_000,
  [`${LIVE}/frames/`]: 120_000, // a frame may have two timelines
};

/** The pages that count, each with its bytes. */
function weights(site, pages) {
  return pages
    .filter((page) => !isPrinted(page))
    .map((page) => ({ page, bytes: statSync(join(site, page)).size }));
}

export function weigh(site, pages) {
  return weights(site, pages)
    .filter(({ bytes }) => bytes > MOST)
    .map(({ page, bytes }) =>
      finding("weight", page, `${bytes} bytes, more than ${MOST}`));
}

/** What live figures load, where it is more than it may be. */
export function weighLive(site) {
  const files = existsSync(join(site, LIVE))
    ? readdirSync(join(site, LIVE), { recursive: true }) : [];
  return files.map((file) => `${LIVE}/${file}`).flatMap((file) => {
    const [, most] = Object.entries(MOST_SENT)
      .find(([start]) => file.startsWith(start)) ?? [];
    if (!most) return [];
    const { length } = gzipSync(readFileSync(join(site, file)));
    return length <= most ? [] :
      [finding("weight", file, `${length} bytes sent, more than ${most}`)];
  });
}

/** Maps from scripts back to their sources. */
export function maps(site) {
  return readdirSync(site, { recursive: true })
    .filter((file) => file.endsWith(".map"))
    .map((file) => finding("weight", file, "a map, which no page uses"));
}

export function heaviest(site, pages) {
  const [{ page, bytes }] = weights(site, pages)
    .sort((a, b) => b.bytes - a.bytes);
  return `${page}: ${bytes} bytes`;
}
