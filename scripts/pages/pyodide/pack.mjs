// Packs Python for the pages: python.js is the interpreter with what is used
// of its library, theory.js has the packages. Both are plain scripts, which a
// page opened from a disk may load; they hold gzip as base64.
// Usage: node pack.mjs ROOT OUT PACKAGE…, such as: . _build/live dpkit/plans
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";

import { loadPyodide } from "pyodide";

const here = import.meta.dirname;
const home = dirname(createRequire(import.meta.url).resolve("pyodide"));
const PARTS = ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"];

/** Put a package or a module, such as book/dpbook/explore, into /src/dpbook/explore. */
function copy(FS, root, name) {
  const target = join("/src", name.replace(/^book\//, ""));
  // What the packages around it import is not there in a page.
  for (let around = dirname(target); around !== "/src"; around = dirname(around)) {
    FS.mkdirTree(around);
    FS.writeFile(join(around, "__init__.py"), "");
  }
  const place = join(root, name);
  if (statSync(place).isFile()) return FS.writeFile(target, readFileSync(place));
  for (const path of readdirSync(place, { recursive: true }).sort()) {
    const file = join(place, path);
    if (path.includes("__pycache__") || !statSync(file).isFile()) continue;
    FS.mkdirTree(dirname(join(target, path)));
    FS.writeFile(join(target, path), readFileSync(file));
  }
}

/** Pyodide, with the packages and their data in /src. */
async function prepared(root, packages) {
  // A fixed seed: sets are written in the same order each time.
  const python = await loadPyodide({ env: { PYTHONHASHSEED: "0", HOME: "/" } });
  for (const name of packages) copy(python.FS, root, name);
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

const [root, out, ...packages] = process.argv.slice(2);
const python = await prepared(root, packages);
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
  script("theory", [["theory.zip", read("/theory.zip")]], packages.join(", ")));
process.exit(0); // Pyodide would keep node awake
