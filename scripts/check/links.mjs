// Every link inside the site leads somewhere, also to a place on a page.
// The options are here and not in a linkinator.config.json: its command reads
// that file, but checks all pages at once, and misses places on a page.
import { LinkChecker } from "linkinator";

import { finding } from "./site.mjs";

/** The links of one page. A checker that went on from page to page would
 * not look at the places that it learns of after having read their page. */
async function followFrom(page, origin) {
  const report = await new LinkChecker().check({
    path: `${origin}/${page}`,
    linksToSkip: [`^(?!${origin})`],
    checkFragments: true,
  });
  return report.links
    .filter((link) => link.state === "BROKEN")
    .map(({ url }) =>
      finding("links", page, `leads nowhere: ${url.replace(origin, "")}`));
}

export async function follow(origin, pages) {
  const findings = [];
  for (const page of pages) {
    findings.push(...await followFrom(page, origin));
  }
  return findings;
}
