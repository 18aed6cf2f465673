// On a phone a page is as wide as the screen, the letters of drawings can be
// read, what scrolls sideways shows that it does, and the contents, which lie
// over the page, lead to a section that is then seen. The calculator says its
// verdict before its controls.
import { show, unfold, VIEWS } from "./axe.mjs";
import { finding, isPrinted } from "./site.mjs";

const LEAST = 11; // pixels, the height of a font
const PHONE = VIEWS.find(({ name }) => name === "phone");
const NARROW = { ...PHONE, size: { width: 360, height: 740 } };

/** In the page: what reaches beyond its right edge, if it scrolls sideways. */
function beyondEdge() {
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth <= clientWidth) return [];
  const isSeen = (part) => part === document.body ||
    (getComputedStyle(part).overflowX === "visible" && isSeen(part.parentElement));
  const isBeyond = (part) => {
    const range = document.createRange();
    range.selectNode(part);
    return [...range.getClientRects()].some(({ right }) => right > clientWidth);
  };
  const walk = document.createTreeWalker(document.querySelector("main"));
  const wide = [];
  while (walk.nextNode()) {
    const part = walk.currentNode;
    if (!part.firstChild && isBeyond(part)) wide.push(part.parentElement);
  }
  // What stands at a place of its own is not cut by what it lies in.
  const part = wide.find(isSeen) ?? wide.find((one) =>
    getComputedStyle(one).position === "absolute") ?? document.body;
  const words = `${part.tagName.toLowerCase()}: ${part.textContent.trim().slice(0, 60)}`;
  return [[scrollWidth, clientWidth, words]];
}

/** In the page: drawings with smaller letters than these, and their size.
 * matplotlib draws letters as shapes, scaled from a font of 100 points. */
async function smallLetters(least) {
  const found = [];
  const note = (picture, size) => {
    if (size < least) {
      const name = picture.getAttribute("alt") ?? picture.getAttribute("aria-label");
      found.push([String(name).slice(0, 60), size.toFixed(1)]);
    }
  };
  for (const svg of document.querySelectorAll("main .bd-article svg, main > svg")) {
    const sizes = [...svg.querySelectorAll("text")]
      .filter((text) => text.getClientRects().length > 0 && text.textContent.trim())
      .map((text) => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a);
    if (sizes.length) note(svg, Math.min(...sizes));
  }
  for (const image of document.querySelectorAll("main img[src$='.svg']")) {
    const reply = await fetch(image.src);
    if (!reply.ok) continue; // the check of links tells of it
    const text = await reply.text();
    const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    const scale = image.clientWidth / svg.viewBox.baseVal.width;
    const drawn = [...text.matchAll(/scale\((0\.\d+) -0\.\d+\)/g)]
      .map(([, size]) => 100 * size * scale);
    // In an image, the width that a style asks for is that of the image.
    const [, most, narrow] = /@media \(max-width:(\d+)px\)\{[^{]*text\{[^}]*font-size:(\d+)px/
      .exec(text) ?? [];
    const written = [...svg.querySelectorAll("text")].map((words) =>
      Number(words.getAttribute("font-size") ?? svg.getAttribute("font-size")) * scale);
    const sizes = image.clientWidth <= most ? [narrow * scale] : [...drawn, ...written];
    if (sizes.length && image.clientWidth) note(image, Math.min(...sizes));
  }
  return found;
}

/** In the page: boxes of which a part is out of sight, and that do not fade. */
function silentBoxes() {
  const scrolls = (box) => box.scrollWidth > box.clientWidth + 1 &&
    /auto|scroll/.test(getComputedStyle(box).overflowX);
  return [...document.querySelectorAll("main *")]
    .filter((box) => box.checkVisibility({ contentVisibilityAuto: true }) &&
      !box.matches("textarea, input") && scrolls(box) &&
      getComputedStyle(box).maskImage === "none")
    .map((box) => `${box.tagName.toLowerCase()}.${box.className}`);
}

/** In the page: whether the calculator has its verdict below its controls. */
function verdictIsLate() {
  const top = (part) => document.querySelector(`#live-calculator ${part}`)
    ?.getBoundingClientRect().top;
  return top(".live-sentence") > top(".live-control");
}

/** Whether a section that the contents lead to is then seen. */
async function contents(tab, page) {
  const opens = tab.locator(".secondary-toggle:visible").first();
  if (!await opens.count()) return [];
  await opens.click();
  const link = tab.locator("dialog[open] a").last();
  await link.waitFor();
  const target = await link.evaluate((a) => a.hash.slice(1));
  await link.click(); // by a key it would close in any case
  const [isOpen, isSeen] = await tab.evaluate((id) => {
    const { top } = document.getElementById(id).getBoundingClientRect();
    return [Boolean(document.querySelector("dialog[open]")), top > -1 && top < innerHeight];
  }, target);
  return [
    ...isOpen ? [finding("phone", page, "the contents lie over what they lead to")] : [],
    ...isSeen ? [] : [finding("phone", page, `the contents do not lead to #${target}`)],
  ];
}

/** What is wrong with a page on a phone. */
export async function onPhone(tab, page) {
  if (isPrinted(page) || page.startsWith("_modules/")) return [];
  await unfold(tab);
  await show(tab, NARROW);
  const wide = await tab.evaluate(beyondEdge);
  await show(tab, PHONE);
  wide.push(...await tab.evaluate(beyondEdge));
  const small = await tab.evaluate(smallLetters, LEAST);
  const silent = await tab.evaluate(silentBoxes);
  const isLate = await tab.evaluate(verdictIsLate);
  return [
    ...isLate ? [finding("phone", page, "the verdict stands below the controls")] : [],
    ...await contents(tab, page),
    ...wide.map(([width, screen, what]) => finding("phone", page,
      `${width} pixels wide, on a screen of ${screen}, because of: ${what}`)),
    ...small.map(([name, size]) => finding("phone", page,
      `letters of ${size} pixels, fewer than ${LEAST}, in: ${name}`)),
    ...silent.map((box) => finding("phone", page,
      `nothing shows that this scrolls: ${box}`)),
  ];
}
