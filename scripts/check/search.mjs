// The search opens by a key, and finds: without asking another server.
import { examineAsIs } from "./axe.mjs";
import { finding } from "./site.mjs";

export async function openSearch(tab, page) {
  const field = tab.locator("dialog input[type=search]").first();
  if (await field.count() === 0) return [];
  await tab.keyboard.press("Control+k");
  try {
    await field.waitFor({ state: "visible", timeout: 5000 });
  } catch {
    return [finding("search", page, "Ctrl+K does not open the search")];
  }
  if (page !== "search.html") return [];
  await field.fill("device");
  await field.press("Enter");
  try {
    await tab.locator("#search-results li a").first().waitFor();
  } catch {
    return [finding("search", page, "finds nothing for: device")];
  }
  return examineAsIs(tab, `${page}, with results`);
}
