// Runs the book's Python in the page: dpkitPython.call(path, argument) gives
// the string that a function of dpkit.theory returns for a string. Python is
// loaded, into a worker, when it is first called. This is a plain script, as
// are python.js and theory.js beside it: a page opened from a disk may load
// no other kind.
var dpkitPython = globalThis.dpkitPython ?? (() => {
  const folder = new URL(".", document.currentScript.src);
  const START = 90, ANSWER = 20; // seconds to wait, on a slow phone
  let started; // a promise of the worker, while there is one
  let last = Promise.resolve(); // the call before this one

  /** What the worker does. It is sent there as text. */
  function work() {
    let python;
    const unpack = async ({ index, packed }) => {
      const bytes = Uint8Array.fromBase64?.(packed) ??
        Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream()
        .pipeThrough(new DecompressionStream("gzip"));
      const whole = new Uint8Array(await new Response(stream).arrayBuffer());
      let end = 0;
      return index.map(([name, size]) =>
        [name, whole.subarray(end, end += size)]);
    };
    const start = async (parts) => {
      const files = Object.fromEntries(
        [...await unpack(parts.python), ...await unpack(parts.theory)]);
      const code = (name) => import(URL.createObjectURL(
        new Blob([files[name]], { type: "text/javascript" })));
      // Pyodide takes a worker that has importScripts for an old one.
      self.importScripts = undefined;
      // What it would fetch from beside itself is at hand.
      const type = { "content-type": "application/wasm" };
      self.fetch = async (url) =>
        new Response(files[String(url).split("/").pop()], { headers: type });
      const { loadPyodide } = await code("pyodide.mjs");
      const { default: createPyodideModule } = await code("pyodide.asm.mjs");
      const indexURL = "https://python.invalid/";
      python = await loadPyodide({
        indexURL, createPyodideModule, stdLibURL: `${indexURL}python.zip`,
        lockFileContents:
          JSON.parse(new TextDecoder().decode(files["lock.json"])),
        env: { PYTHONHASHSEED: "0", HOME: "/" },
      });
      python.unpackArchive(files["theory.zip"], "zip", { extractDir: "/theory" });
      python.runPython("import sys; sys.path.insert(0, '/theory')");
    };
    const answer = ([path, argument]) => {
      const [module, name] = path.split(":");
      return python.pyimport(module)[name](argument);
    };
    self.onmessage = async ({ data }) => {
      try {
        const found = Array.isArray(data) ? answer(data) : await start(data);
        self.postMessage({ found });
      } catch (error) {
        // The last line of a traceback says what is wrong.
        const lines = String(error.message ?? error).trim().split("\n");
        self.postMessage({ error: lines.at(-1) });
      }
    };
  }

  /** Loads a script that lies beside this one. */
  const load = (name) => new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = new URL(name, folder).href;
    script.onload = done;
    script.onerror = () => failed(new Error(`${name} cannot be loaded`));
    document.head.append(script);
  });

  /** Sends the worker a message; it answers, fails, or is out of time. */
  const send = (worker, message, seconds) => new Promise((done, failed) => {
    const end = (words) => {
      worker.terminate();
      started = undefined; // the next call starts another
      failed(new Error(words));
    };
    const late = setTimeout(
      () => end(`Python did not answer within ${seconds} s`), seconds * 1000);
    worker.onmessage = ({ data }) => {
      clearTimeout(late);
      if ("error" in data) failed(new Error(data.error));
      else done(data.found);
    };
    worker.onerror = (event) => {
      clearTimeout(late);
      end(event.message ?? "Python cannot run in this browser");
    };
    worker.postMessage(message);
  });

  async function start() {
    const { parts } = dpkitPython;
    if (!parts.python) await load("python.js");
    if (!parts.theory) await load("theory.js");
    const code = new Blob([`(${work})()`], { type: "text/javascript" });
    const worker = new Worker(URL.createObjectURL(code));
    await send(worker, parts, START);
    return worker;
  }

  async function ask(path, argument, seconds) {
    started ??= start();
    let worker;
    try {
      worker = await started;
    } catch (error) {
      started = undefined;
      throw error;
    }
    return send(worker, [path, argument], seconds);
  }

  return {
    parts: {}, // what python.js and theory.js give
    available: true, // where they could not be made, the build says false
    /**
     * Calls a function, such as "dpbook.explore.all:answer", with a
     * string. One call runs at a time. What takes longer than `seconds` is
     * ended, and Python starts afresh for the next call.
     */
    call(path, argument, seconds = ANSWER) {
      if (!this.available) {
        return Promise.reject(new Error("this copy of the book has no Python"));
      }
      const turn = last.then(() => ask(path, argument, seconds));
      last = turn.catch(() => {});
      return turn;
    },
  };
})();
