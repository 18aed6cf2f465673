// Runs the book's Python in the page: dpkitPython.call(path, argument) gives
// the string that a function of dpkit or dpbook returns for a string. Python is
// loaded, into a worker, when it is first called. This is a plain script, as
// are python.js and theory.js beside it: a page opened from a disk may load
// no other kind.
var dpkitPython = globalThis.dpkitPython ?? (() => {
  const folder = new URL(".", document.currentScript.src);
  const START = 90, ANSWER = 20; // seconds to wait, on a slow phone
  let started; // a promise of the worker, while there is one
  let last = Promise.resolve(); // the call before this one
  const waiting = new Set(); // what tells of calls that have no answer yet

  /** How many bytes Python is made of; 0 if the build does not say. */
  const total = () =>
    Object.values(dpkitPython.sizes).reduce((sum, size) => sum + size, 0);

  /** Tells all who wait how far Python is: words and, while it is loaded, the
   * share of its bytes that have come. The share may not be known. */
  let told = ["Python is loaded, once …", NaN];
  const say = (words, share) => {
    told = [words, share];
    waiting.forEach((tell) => tell(words, share));
  };

  /** What the worker does. It is sent there as text. */
  function work() {
    let python, PythonError;
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
      ({ PythonError } = python.ffi); // a broken Python does not tell it
      python.unpackArchive(files["theory.zip"], "zip", { extractDir: "/theory" });
      python.runPython("import sys; sys.path.insert(0, '/theory')");
    };
    const answer = ([path, argument]) => {
      const [module, name] = path.split(":");
      return python.pyimport(module)[name](argument);
    };
    // What Python prints, as it is printed: page.py calls this.
    self.dpkitPrinted = (printed) => self.postMessage({ printed });
    self.onmessage = async ({ data }) => {
      try {
        const found = Array.isArray(data) ? answer(data) : await start(data);
        self.postMessage({ found });
      } catch (error) {
        // The last line of a traceback says what is wrong.
        const lines = String(error.message ?? error).trim().split("\n");
        // What is no error of Python's has broken Python itself: it would
        // refuse every later call.
        const broken = !PythonError || !(error instanceof PythonError);
        self.postMessage({ error: lines.at(-1), broken });
      }
    };
  }

  /** The address of a script beside this one, when it is there. Over http its
   * bytes are counted as they come: `arrived` gets how many. */
  async function fetched(name, arrived) {
    const { href, protocol } = new URL(name, folder);
    if (protocol === "file:") return href; // may not be fetched
    const { ok, body } = await fetch(href);
    if (!ok) throw new Error(href);
    const counted = body.pipeThrough(new TransformStream({
      transform(chunk, controller) {
        arrived(chunk.length);
        controller.enqueue(chunk);
      },
    }));
    const headers = { "content-type": "text/javascript" };
    return URL.createObjectURL(await new Response(counted, { headers }).blob());
  }

  /** Loads a script that lies beside this one. */
  async function load(name, arrived) {
    try {
      const src = await fetched(name, arrived);
      await new Promise((done, failed) => {
        const script = document.createElement("script");
        document.head.append(
          Object.assign(script, { src, onload: done, onerror: failed }));
      });
      URL.revokeObjectURL(src);
    } catch {
      throw new Error(`${name} cannot be loaded`);
    }
  }

  /** Loads what Python is made of, and says how much has come. */
  async function loadParts() {
    const { parts } = dpkitPython;
    let sum = 0;
    const arrived = (bytes) => {
      sum += bytes;
      say("Python is loaded, once …", total() ? Math.min(1, sum / total()) : NaN);
    };
    arrived(0);
    if (!parts.python) await load("python.js", arrived);
    if (!parts.theory) await load("theory.js", arrived);
    return parts;
  }

  /** Sends the worker a message; it answers, fails, breaks down, is out of
   * time, or is stopped by a signal. All but the first two end it. Meanwhile
   * `hear` gets what it prints. */
  const send = (worker, message, { seconds, signal, hear }) => new Promise((done, failed) => {
    const settle = () => {
      clearTimeout(late);
      signal?.removeEventListener("abort", stop);
    };
    const end = (words, cause) => {
      settle();
      worker.terminate();
      started = undefined; // the next call starts another
      failed(new Error(words, { cause }));
    };
    const stop = () => end("it was stopped");
    const [does, cause] = message === dpkitPython.parts ?
      ["start"] : ["answer", "late"];
    const late = setTimeout(() =>
      end(`Python did not ${does} within ${seconds} s`, cause), seconds * 1000);
    signal?.addEventListener("abort", stop);
    worker.onmessage = ({ data: { found, error, broken, printed } }) => {
      if (printed !== undefined) return hear?.(printed);
      settle();
      if (broken) {
        end(`Python broke down (${error}) and starts afresh`,
          /stack|recursion/.test(error) ? "recursion" : "");
      } else if (error !== undefined) failed(new Error(error));
      else done(found);
    };
    worker.onerror = (event) =>
      end(event.message ?? "Python cannot run in this browser");
    worker.postMessage(message);
  });

  async function start() {
    const parts = await loadParts();
    say("Python is started …");
    const code = new Blob([`(${work})()`], { type: "text/javascript" });
    const worker = new Worker(URL.createObjectURL(code));
    await send(worker, parts, { seconds: START });
    return worker;
  }

  async function ask(path, argument, options) {
    const { signal } = options;
    signal?.throwIfAborted();
    started ??= start();
    let worker;
    try {
      worker = await started;
    } catch (error) {
      started = undefined;
      throw error;
    }
    signal?.throwIfAborted();
    say("Python is at work …");
    return send(worker, [path, argument], options);
  }

  return {
    parts: {}, // what python.js and theory.js give
    sizes: {}, // their bytes, which the build says
    available: true, // where they could not be made, the build says false
    /**
     * Calls a function, such as "dpbook.explore.all:answer", with a
     * string. One call runs at a time. What takes longer than `seconds`, is
     * stopped by the `signal` of an AbortController, or breaks Python is
     * ended, and Python starts afresh for the next call; the cause of an
     * error may be "late" or "recursion". Meanwhile `tell`, which `telling`
     * makes, hears how far Python is, and `hear` what is printed.
     */
    call(path, argument, { seconds = ANSWER, signal, tell = () => {}, hear } = {}) {
      if (!this.available) {
        return Promise.reject(new Error("this copy of the book has no Python"));
      }
      waiting.add(tell);
      tell(...told);
      const turn = last.then(() => ask(path, argument, { seconds, signal, hear }));
      last = turn.catch(() => {});
      // Who stops a call does not wait for Python to be loaded.
      const stopped = new Promise((_, failed) =>
        signal?.addEventListener("abort", () => failed(signal.reason)));
      return Promise.race([turn, stopped]).finally(() => {
        waiting.delete(tell);
        tell();
      });
    },

    /**
     * Makes the `tell` of calls: it has the words said, and shows after an
     * element a bar of how much of Python is loaded.
     */
    telling(element, sayWords) {
      const make = (tag) => document.createElement(tag);
      const row = make("p"), bar = make("progress"), words = make("span");
      bar.setAttribute("aria-label", "Python, loaded");
      row.className = "python-loading";
      row.hidden = true;
      row.append(bar, " ", words);
      let said;
      return (phase, share) => {
        if (!row.isConnected) element.after(row);
        row.hidden = share === undefined;
        if (share >= 0) {
          // It is base64, of which compression sends three bytes of four.
          const megabytes = (0.75 * total() / 1e6).toFixed(1);
          bar.value = share;
          words.textContent = `${Math.floor(100 * share)} % of ${megabytes} MB`;
        }
        if (phase && phase !== said) sayWords(phase);
        said = phase;
      };
    },
  };
})();
