// An old address of a section that moved leads to where it stands now.
import { rest } from "./browser.mjs";
import { finding } from "./site.mjs";

/** Old names and new addresses, of a page that lost sections. */
const addressesOf = (tab) =>
  tab.evaluate(() => typeof moved === "undefined" ? {} : moved);

/** Whether the page that an address names has the place that it names. */
async function hasPlace(tab, address) {
  const { hash, href } = new URL(address, tab.url());
  const answer = await tab.request.get(href);
  const text = answer.ok() ? await answer.text() : "";
  return hash ? text.includes(`id="${hash.slice(1)}"`) : answer.ok();
}

/** Every new address is a place, and the page goes to the first of them. */
export async function followMoved(tab, page, origin) {
  const old = `${origin}/${page}`;
  const moved = Object.entries(await addressesOf(tab));
  const findings = [];
  for (const [name, address] of moved) {
    if (!await hasPlace(tab, address)) {
      findings.push(finding("moved", page, `#${name} is not at ${address}`));
    }
  }
  if (moved.length > 0) {
    const [name, address] = moved[0];
    const { href } = new URL(address, tab.url());
    await tab.goto(`${old}#${name}`);
    await rest(tab, 1_000).catch(() => {}); // by then the page has gone
    await tab.waitForLoadState("load");
    if (tab.url() !== href) {
      findings.push(finding("moved", page, `#${name} does not lead to ${address}`));
    }
    await tab.goto(old, { waitUntil: "load" });
  }
  return findings;
}
