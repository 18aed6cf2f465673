// Ranks what the search finds, in place of Sphinx's own ranking, which does not
// ask how often a word stands on a page. `words.js` beside this file has what is
// known of the pages (scripts/pages/search_index.py); Sphinx's searchtools.js shows
// the results.
//
// A page has the sum of the weights of the words that were typed. The glossary
// leads: where what was typed is one of its entries, the page that the entry
// names first comes first, then the others, and the entry itself after them.
"use strict";

const MOST_PAGES = 20;
const MOST_NAMES = 10;
// What an entry adds to a page: where the reader typed the entry and nothing
// else; and where its words are among others, for each word.
const WHOLE_ENTRY = 1000;
const NAMED_LATER = 950;
const IN_GLOSSARY = 900;
const ENTRY_WORD = 2;
// A word that stands on no page is taken for a part of those that do.
const SHORTEST_PART = 4;

const BRITISH = /is(e[drs]?|ers|ing|ations?)$/; // as in search_index.py
const stemmer = new Stemmer(); // of Sphinx's language_data.js
const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
const escaped = (text) => text.replace(/[&<>]/g, (sign) => entities[sign]);

/** The words of a text as the index has them: as `stems` in search_index.py. */
function stems(text) {
  return (text.toLowerCase().match(/[\p{Letter}\p{Number}_]+/gu) ?? [])
    .filter((word) => word.length > 1 && !/^\p{Number}+$/u.test(word))
    .filter((word) => !searchIndex.stop.includes(word))
    .map((word) => stemmer.stemWord(word.replace(BRITISH, "iz$1")));
}

/** The words of the index that a word stands for. */
function known(word) {
  const { words } = searchIndex;
  if (Object.hasOwn(words, word)) return [word];
  return word.length < SHORTEST_PART ? [] :
    Object.keys(words).filter((longer) => longer.includes(word));
}

/** What each page has of some words, by BM25. */
function weigh(words) {
  const scores = new Map();
  for (const word of new Set(words.flatMap(known))) {
    const pairs = searchIndex.words[word];
    for (let i = 0; i < pairs.length; i += 2) {
      const [page, weight] = [pairs[i], pairs[i + 1] / searchIndex.steps];
      scores.set(page, (scores.get(page) ?? 0) + weight);
    }
  }
  return scores;
}

const joined = (words) => words.replaceAll(" ", "");
const sorted = (words) => words.trim().split(" ").sort().join(" ");

/** What the entries of the glossary add: [page, place, how much] for each.
 * Some write an entry as one word, or its words in another order: batchnorm;
 * FSDP or DDP. */
function led(text) {
  const typed = stems(text.replaceAll("_", " "));
  const within = ` ${typed.join(" ")} `;
  const isTyped = (entry) => within.includes(` ${entry} `);
  const isAll = (entry) =>
    joined(entry) === joined(within) || sorted(entry) === sorted(within);
  return Object.entries(searchIndex.entries)
    .filter(([entry]) => isAll(entry) || isTyped(entry) || isTyped(joined(entry)))
    .flatMap(([entry, places]) => places.map(([page, place], i) => {
      const isGlossary = searchIndex.glossaries.includes(page);
      if (isAll(entry)) {
        const more = i === 0 ? WHOLE_ENTRY : NAMED_LATER;
        return [page, place, isGlossary ? IN_GLOSSARY : more];
      }
      return [page, place, isGlossary ? 0 : ENTRY_WORD * entry.split(" ").length];
    }));
}

/** The heading of a page that has all of some words, if one has. Where its
 * title has them, the page is found as a whole. */
function headingWith(words, page) {
  const headings = searchIndex.headings[page];
  const first = headings.findIndex(([text]) => {
    const has = stems(text);
    return words.every((word) => has.includes(word));
  });
  return first > 0 ? headings[first] : undefined;
}

/** The pages for what a reader has typed, best first. */
function rankPages(text) {
  const words = stems(text);
  const scores = weigh(words);
  const places = new Map();
  for (const [page, place, more] of led(text)) {
    scores.set(page, (scores.get(page) ?? 0) + more);
    if (more >= IN_GLOSSARY && place) places.set(page, place);
  }
  const isLast = (page) => searchIndex.last.includes(page);
  return [...scores.entries()]
    .sort(([a, less], [b, more]) => isLast(a) - isLast(b) || more - less)
    .slice(0, MOST_PAGES)
    .map(([page, score]) => {
      const heading = headingWith(words, page);
      const place = places.get(page) ?? heading?.[1];
      const [[title]] = searchIndex.headings[page];
      const shown = heading && !places.has(page) ? `${title} > ${heading[0]}` : title;
      return { page, place, title: shown, about: null, score };
    });
}

/** The names of the package that hold all that was typed, exact ones first. */
function rankNames(text) {
  const typed = text.toLowerCase().trim();
  const isWhole = (name) => `.${name.toLowerCase()}`.endsWith(`.${typed}`);
  return searchIndex.names
    .filter(([name]) => name.toLowerCase().includes(typed))
    .sort(([a], [b]) => isWhole(b) - isWhole(a) || a.length - b.length)
    .slice(0, MOST_NAMES)
    .map(([name, page, place, kind]) => {
      const [[title]] = searchIndex.headings[page];
      return { page, place, title: name, about: `${kind}, in ${title}`, score: 0 };
    });
}

/** Results as Sphinx shows them: it takes them from the end. */
function rank(text) {
  return [...rankPages(text), ...rankNames(text)].reverse()
    .map(({ page, place, title, about, score }) => [
      searchIndex.pages[page], escaped(title), place ? `#${place}` : "", about, score, "",
    ]);
}

Search._performSearch = rank;

// What is quoted of a page is in its article, and not among the buttons above.
// Formulas are there twice, as MathML and as they are drawn.
const DRAWN = /<(math|svg)\b.*?<\/\1>/gs;
const textOf = Search.htmlToText;
Search.htmlToText = (html, place) =>
  textOf(html.replaceAll(DRAWN, " "), place || "article");

Search.setIndex({}); // all is there: the search may begin
