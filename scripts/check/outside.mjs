// Which links that lead out of the site are dead: a report, and no failure,
// because another site may be down for a day, or refuse programs.
// Usage: node outside.mjs [ROOT]: the folder that holds _build/html.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { LinkChecker } from "linkinator";

import { serve } from "./server.mjs";
import { pagesOf } from "./site.mjs";

const HREF = /<a\s[^>]*?href="(https?:\/\/[^"#]+)/g;
// An address before the owner has written one: scripts/set_address.py.
const UNSET = /^https:\/\/unset\.invalid\//;

const OPTIONS = {
  concurrency: 8,
  retry: true, // when a site asks to come again later
  retryErrors: true, // when it answers with an error, or not at all
  retryErrorsCount: 3,
  timeout: 20_000,
};

/** The links out of a site, as they are written, each with its pages. */
function linksOut(site) {
  const pagesByLink = new Map();
  for (const page of pagesOf(site)) {
    const html = readFileSync(join(site, page), "utf-8");
    for (const [, link] of html.matchAll(HREF)) {
      if (UNSET.test(link)) continue;
      const pages = pagesByLink.get(link) ?? new Set();
      pagesByLink.set(link, pages.add(page));
    }
  }
  return pagesByLink;
}

/** The links that are dead after all tries, as linkinator tells of them. */
async function dead(links) {
  const folder = mkdtempSync(join(tmpdir(), "links-"));
  const list = links.map((link) => `<a href="${link}">link</a>`).join("\n");
  writeFileSync(join(folder, "index.html"), `<html>${list}</html>`);
  const { origin, server } = await serve(folder);
  try {
    const path = `${origin}/index.html`;
    const report = await new LinkChecker().check({ path, ...OPTIONS });
    return report.links.filter(({ state }) => state === "BROKEN");
  } finally {
    server.close();
    rmSync(folder, { recursive: true });
  }
}

const decoded = (link) => link.replaceAll("&amp;", "&");

const site = join(resolve(process.argv[2] ?? "."), "_build", "html");
const pagesByLink = linksOut(site);
const found = await dead([...pagesByLink.keys()]);
for (const { url, status } of found) {
  const link = [...pagesByLink.keys()]
    .find((each) => new URL(decoded(each)).href === new URL(url).href);
  const pages = [...pagesByLink.get(link) ?? []].join(", ");
  console.log(`dead: ${url} (status: ${status}, pages: ${pages})`);
}
console.log(`links out of the site: ${pagesByLink.size}, dead: ${found.length}`);
