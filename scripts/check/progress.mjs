// Python is loaded for a page over a slow network, and the page says how far
// it is.
const BYTES = 4_000_000; // a second

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

/** Whether a bar in a part of the page shows how much of Python has come: more
 * and more, from less than half, as long as the part is busy. */
export async function comesBySteps(part, isBusy) {
  const bar = part.locator("progress");
  const seen = [];
  while (await isBusy()) {
    const share = await bar.count() ? await bar.evaluate((b) =>
      b.checkVisibility() ? b.position : -1) : -1;
    if (share >= 0 && share !== seen.at(-1)) seen.push(share);
    await new Promise((done) => setTimeout(done, 10));
  }
  const rises = seen.every((share, i) => i === 0 || share > seen[i - 1]);
  return seen.length > 2 && seen[0] < 0.5 && rises;
}
