// Draws pictures for notebooks, where not every viewer shows SVG.
// Usage: node draw.mjs FOLDER
//
// Beside each NAME.html of the folder comes NAME.png, with two of its pixels
// for one of the screen. Ends with 3 if there is no chromium.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

import { findChromium, visit } from "./browser.mjs";

const STYLE = `<style>
  body { margin: 0; background: white; font: 14px sans-serif; }
  #picture { width: max-content; max-width: 768px; }
  #picture svg { display: block; }
  label { display: none !important; } /* a switch, which a picture has not */
</style>`;

/** Writes the picture of one HTML file. */
async function draw(tab, file) {
  const html = readFileSync(file, "utf-8");
  await tab.setContent(`${STYLE}<div id="picture">${html}</div>`);
  const path = file.replace(/html$/, "png");
  await tab.locator("#picture").screenshot({ path });
  return [];
}

if (!findChromium()) {
  console.error("no chromium on the PATH");
  process.exit(3);
}
const folder = process.argv[2];
const names = readdirSync(folder);
const files = names
  .filter((name) => name.endsWith(".html"))
  .filter((name) => !names.includes(name.replace(/html$/, "png")))
  .map((name) => join(folder, name));
await visit(files, draw, { deviceScaleFactor: 2, colorScheme: "light" });
