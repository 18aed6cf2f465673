// The search opens by a key, and finds what students type: without asking
// another server.
import { examineAsIs } from "./axe.mjs";
import { rest } from "./browser.mjs";
import { finding } from "./site.mjs";

// What students type, and the pages of which one is to be among the first two.
const QUERIES = {
  "DDP": "data-parallelism-concise",
  "deadlock": "museum cluster",
  "bucket size": "overlap",
  "memory of Adam": "sharding",
  "tensor parallelism": "layer-partitioning",
  "ZeRO stage 3": "sharding",
  "FSDP": "sharding",
  "all-reduce": "collectives",
  "allreduce": "data-parallelism collectives",
  "ring": "collectives",
  "NCCL timeout": "cluster",
  "gradient accumulation": "batch-norm sharding",
  "pipeline bubble": "network-partitioning schedules",
  "activation checkpointing": "memory network-partitioning",
  "out of memory": "memory",
  "torchrun": "data-parallelism-concise",
  "learning rate scaling": "large-batches",
  "batch norm": "batch-norm",
  "batch normalization": "batch-norm",
  "how many GPUs do I need": "plan-a-run calculator",
  "mixed precision": "precision",
  "sequence parallelism": "layer-partitioning",
  "expert parallelism": "experts",
  "mixture of experts": "experts",
  "1F1B": "network-partitioning schedules",
  "all_gather": "collectives",
  "data parallel": "data-parallelism data-parallelism-concise",
  "zero 3": "sharding",
  "ddp vs fsdp": "sharding",
  "OOM": "memory",
  "gradient checkpointing": "memory network-partitioning",
  "checkpoint": "cluster",
  "bfloat16": "precision",
  "half precision": "precision",
  "ring allreduce": "collectives",
  "tokens per second": "plan-a-run",
  "d2l": "from-d2l",
  "get_params": "from-d2l",
  "multi gpu": "data-parallelism",
  "training on multiple GPUs": "data-parallelism from-d2l",
  "two GPUs slower than one": "two-devices",
  "multi gpu evaluation": "data-parallelism",
  "nn.DataParallel": "data-parallelism-concise",
  "simulate GPUs": "how-to",
  "gpu memory calculator": "calculator",
  "how much memory does a 7B model need": "calculator",
  "cost of training": "calculator",
  "fp8": "precision",
  "float8": "precision mesh",
  "warmup": "large-batches",
  "batchnorm": "batch-norm",
  "reduce scatter": "collectives",
  "how does DDP work": "data-parallelism-concise",
  "no_sync": "overlap buckets",
};
const FIRST = 2;

/** In the page: whether so many results are listed, or all that there are.
 * Search is Sphinx's, and says at its end how many it has found. rank.js of the
 * book has ranked them. */
function hasListed(enough) {
  const isOver = typeof Search === "undefined" || Search.status.textContent;
  return isOver ||
    document.querySelectorAll("#search-results li a").length >= enough;
}

/** The pages that the search finds first. */
async function firstPages(tab, words) {
  const { origin, pathname } = new URL(tab.url());
  const query = `?q=${encodeURIComponent(words)}`;
  await tab.goto(`${origin}${pathname}${query}`, { waitUntil: "load" });
  await tab.waitForFunction(hasListed, FIRST);
  const found = await tab.locator("#search-results li a")
    .evaluateAll((all) => all.map((a) => a.pathname));
  return found.slice(0, FIRST).map((path) => path.split("/").pop().replace(".html", ""));
}

/** What students type leads to the right page, where the site has it. */
async function findPages(tab, pages) {
  const findings = [];
  for (const [words, named] of Object.entries(QUERIES)) {
    const right = named.split(" ");
    if (!right.every((name) => pages.includes(`book/${name}.html`))) continue;
    const found = await firstPages(tab, words);
    if (!right.some((name) => found.includes(name))) {
      findings.push(finding("search", "search.html",
        `for “${words}” it finds ${found.join(", ") || "nothing"} first, not ${right.join(" or ")}`));
    }
  }
  return findings;
}

/** In the page: whether a sign lies on the words of a field to search in. */
const isCovered = () => [...document.querySelectorAll("form.bd-search")]
  .filter((form) => form.checkVisibility())
  .some((form) => {
    const field = form.querySelector("input");
    const left = field.getBoundingClientRect().left + parseFloat(getComputedStyle(field).paddingLeft);
    return form.querySelector("i, svg")?.getBoundingClientRect().right > left;
  });

/** Whether the words of the field can be read. */
const read = async (tab, page) => await tab.evaluate(isCovered) ?
  [finding("search", page, "a sign lies on the words of the field")] : [];

/** On the page of results: whether there are some, and axe on these. */
async function results(tab, page, pages) {
  if (!(await firstPages(tab, "device")).length) {
    return [finding("search", page, "finds nothing for: device")];
  }
  const seen = await examineAsIs(tab, `${page}, with results`);
  return [...seen, ...await read(tab, page), ...await findPages(tab, pages)];
}

/** That every page leads to the search, and the search to something. */
export async function openSearch(tab, page, pages) {
  if (page === "search.html") return results(tab, page, pages);
  const field = tab.locator("dialog input[type=search]").first();
  if (await field.count() === 0) {
    return [finding("search", page, "has no field to search in")];
  }
  await tab.keyboard.press("Control+k");
  await rest(tab, 300);
  if (!await field.isVisible()) {
    return [finding("search", page, "Ctrl+K does not open the search")];
  }
  return read(tab, page);
}
