// Every picture of the text has words that stand in for it. axe lets an
// empty text pass, and a file name, which Sphinx writes where there is none.
import { finding } from "./site.mjs";

export async function nameless(tab, page) {
  const found = await tab.evaluate(() => {
    // The sign on a button has the name of the button, which axe looks at.
    const hidden = "[aria-hidden=true] *, [aria-hidden=true], button svg";
    const pictures = [...document.querySelectorAll("main img, main svg")];
    const words = (picture) =>
      picture.getAttribute("alt") ?? picture.getAttribute("aria-label") ??
      picture.querySelector(":scope > title")?.textContent ?? "";
    const says = (text) =>
      text.trim() !== "" && !/\.(png|svg|jpe?g|gif|webp)$/.test(text);
    return pictures
      .filter((picture) => !picture.matches(hidden) && !says(words(picture)))
      .map((picture) => picture.cloneNode(false).outerHTML.slice(0, 150));
  });
  return found.map((tag) =>
    finding("pictures", page, `a picture without a text: ${tag}`));
}
