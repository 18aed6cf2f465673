// The prose of the project, and where each line of it stands.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The files in a folder that end so, as paths from `root`. */
function files(root, folder, ending, recursive = false) {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { recursive })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name))
    .sort();
}

function pages(root) {
  const names = [".", "book", "tests", "scripts", "scripts/owner/archive"]
    .flatMap((folder) => files(root, folder, ".md"));
  return names.map((name) => ({
    text: readFileSync(join(root, name), "utf-8"),
    place: (line) => `${name}:${line}`,
  }));
}

/** The cells with prose, and what stands below and for each figure. */
function notebookParts(root, name) {
  const notebook = JSON.parse(readFileSync(join(root, name), "utf-8"));
  return notebook.cells.flatMap(({ id, cell_type, source, metadata }) => {
    const { figure, image } = metadata.mystnb ?? {};
    const cell = `${name}, cell ${id}`;
    const words = cell_type === "markdown" ? [source].flat().join("") : "";
    return [
      { text: words, place: (line) => `${cell}, line ${line}` },
      { text: figure?.caption ?? "", place: () => `${cell} (caption)` },
      { text: image?.alt ?? "", place: () => `${cell} (alt)` },
    ];
  });
}

/** The docstrings of a module; its other lines are left empty. */
function docstrings(root, name) {
  const source = readFileSync(join(root, name), "utf-8");
  const inside = /^ *r?"""[\s\S]*?"""/gm;
  const blank = (code) => code.replace(/[^\n]+/g, "");
  let text = "", end = 0;
  for (const { 0: found, index } of source.matchAll(inside)) {
    text += blank(source.slice(end, index)) + found;
    end = index + found.length;
  }
  return { text, place: (line) => `${name}:${line}` };
}

/** All of it, as parts: a text, and a function from its lines to places. */
export function prose(root) {
  return [
    ...pages(root),
    ...files(root, "book", ".ipynb").flatMap((n) => notebookParts(root, n)),
    ...files(root, "dpkit", ".py", true).map((n) => docstrings(root, n)),
    ...files(root, "book/dpbook", ".py", true).map((n) => docstrings(root, n)),
  ];
}
