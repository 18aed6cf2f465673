// Packs Python for the pages: python.js is the interpreter with what is used
// of its library, theory.js is dpkit.theory. Both are plain scripts, which a
// page opened from a disk may load; they hold gzip as base64.
// Usage: node pack.mjs ROOT OUT
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";

import { loadPyodide } from "pyodide";

const here = import.meta.dirname;
const home = dirname(createRequire(import.meta.url).resolve("pyodide"));
const PARTS = ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"];

/** Pyodide, with the theory and its data in /src. */
async function prepared(root) {
  // A fixed seed: sets are written in the same order each time.
  const python = await loadPyodide({ env: { PYTHONHASHSEED: "0", HOME: "/" } });
  const theory = join(root, "dpkit", "theory");
  const { FS } = python;
  FS.mkdirTree("/src/dpkit");
  FS.writeFile("/src/dpkit/__init__.py", "");
  for (const path of readdirSync(theory, { recursive: true }).sort()) {
    const file = join(theory, path);
    if (path.includes("__pycache__") || !statSync(file).isFile()) continue;
    FS.mkdirTree(dirname(`/src/dpkit/theory/${path}`));
    FS.writeFile(`/src/dpkit/theory/${path}`, readFileSync(file));
  }
  return python;
}

/** Files as a script that gives them, and where each ends, to the engine. */
function script(name, files, words) {
  const packed = gzipSync(Buffer.concat(files.map(([, bytes]) => bytes)), { level: 9 });
  packed[9] = 255; // which system packed it: unknown
  const index = files.map(([file, bytes]) => [file, bytes.length]);
  const told = JSON.stringify({ index, packed: packed.toString("base64") });
  return `// ${words}\ndpkitPython.parts.${name} = ${told};\n`;
}

const [root, out] = process.argv.slice(2);
const python = await prepared(root);
python.runPython(readFileSync(join(here, "trim.py"), "utf-8"));
const version = JSON.parse(readFileSync(join(home, "package.json"))).version;
const { info } = JSON.parse(readFileSync(join(home, "pyodide-lock.json")));
const lock = Buffer.from(JSON.stringify({ info, packages: {} }));
const read = (path) => Buffer.from(python.FS.readFile(path));
mkdirSync(out, { recursive: true });
writeFileSync(join(out, "python.js"), script("python", [
  ...PARTS.map((name) => [name, readFileSync(join(home, name))]),
  ["lock.json", lock],
  ["python.zip", read("/python.zip")],
], `Pyodide ${version} (MPL-2.0) and CPython ${info.python} (PSF-2.0): https://pyodide.org`));
writeFileSync(join(out, "theory.js"),
  script("theory", [["theory.zip", read("/theory.zip")]], "dpkit.theory"));
process.exit(0); // Pyodide would keep node awake
