// What a reader has typed stays in this browser, by key: each box and each
// exercise has its own, so that tabs do not overwrite each other's. Where
// nothing can be stored, it lasts as long as the page.
var dpkitKept = (() => {
  let storage = {};
  try { storage = localStorage; } catch { }
  return {
    /** The text that is kept by a key, or null. */
    get: (key) => storage[key] ?? null,
    set(key, text) {
      try {
        storage[key] = text;
      } catch {
        storage = { ...storage, [key]: text };
      }
    },
    forget: (key) => delete storage[key],
    keys: () => Object.keys(storage),
  };
})();
