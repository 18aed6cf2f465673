// Python is loaded for a page over a slow network, and the page says how far
// it is.
const BYTES = 2_000_000; // a second

/** Does something while the network of a tab is slow and nothing is cached. */
export async function slowly(tab, act) {
  const network = await tab.context().newCDPSession(tab);
  const set = (downloadThroughput) =>
    network.send("Network.emulateNetworkConditions", {
      offline: false, latency: 0, downloadThroughput, uploadThroughput: -1 });
  await network.send("Network.enable");
  await network.send("Network.setCacheDisabled", { cacheDisabled: true });
  await set(BYTES);
  await act();
  await set(-1);
  await network.detach();
}

/** Begins to write down how much of Python a bar in a part of the page shows.
 * The page itself does it: on a busy machine some shares are there for less
 * time than it takes to ask. */
export function watchBar(part) {
  return part.evaluateHandle((box) => {
    const seen = [];
    const look = () => {
      const bar = box.querySelector("progress");
      const share = bar?.checkVisibility() ? bar.position : -1;
      if (share >= 0 && share !== seen.at(-1)) seen.push(share);
    };
    new MutationObserver(look).observe(box,
      { subtree: true, childList: true, attributes: true });
    return seen;
  });
}

/** Whether what was written down shows more and more of Python, from less than
 * half, as long as the part is busy. */
export async function comesBySteps(watched, isBusy) {
  while (await isBusy()) await new Promise((done) => setTimeout(done, 10));
  const seen = await watched.jsonValue();
  const rises = seen.every((share, i) => i === 0 || share > seen[i - 1]);
  return seen.length > 2 && seen[0] < 0.5 && rises;
}
