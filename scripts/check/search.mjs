// The search opens by a key, and finds: without asking another server.
import { examineAsIs } from "./axe.mjs";
import { finding } from "./site.mjs";

// In milliseconds.
const PATIENCE = { timeout: Number(process.env.SEARCH_PATIENCE ?? 10_000) };

/** On the page of results: whether there are some, and axe on these. */
async function results(tab, page) {
  await tab.goto(`${tab.url()}?q=device`);
  try {
    await tab.locator("#search-results li a").first().waitFor(PATIENCE);
  } catch {
    return [finding("search", page, "finds nothing for: device")];
  }
  return examineAsIs(tab, `${page}, with results`);
}

/** That every page leads to the search, and the search to something. */
export async function openSearch(tab, page) {
  if (page === "search.html") return results(tab, page);
  const field = tab.locator("dialog input[type=search]").first();
  if (await field.count() === 0) {
    return [finding("search", page, "has no field to search in")];
  }
  await tab.keyboard.press("Control+k");
  try {
    await field.waitFor({ state: "visible", ...PATIENCE });
  } catch {
    return [finding("search", page, "Ctrl+K does not open the search")];
  }
  return [];
}
