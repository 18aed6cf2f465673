// Takes the pictures of the first page that stand elsewhere: in the README,
// and in links to the book. Usage, after make book: node preview.mjs ROOT
import { join, resolve } from "node:path";

import { visit } from "./browser.mjs";
import { serve } from "./server.mjs";

const PAGE = "book/index.html";
// A link shows 1200 × 630 pixels: the title and the first drawing.
const PREVIEW = `
  .bd-sidebar-primary, .bd-sidebar-secondary, .bd-header-article { display: none !important }
  .bd-article-container { max-width: 1080px !important; margin: 0 auto; zoom: 1.3 }
  figcaption { display: none }
`;

const root = resolve(process.argv[2] ?? ".");
const { origin, server } = await serve(join(root, "_build", "html"));

const look = (file, style) => async (tab, page) => {
  await tab.goto(`${origin}/${page}`, { waitUntil: "networkidle" });
  if (style) await tab.addStyleTag({ content: style });
  await tab.screenshot({ path: join(root, file) });
  return [];
};

await visit([PAGE], look(".github/book.png"), { viewport: { width: 1280, height: 900 } });
await visit([PAGE], look("book/_static/preview.png", PREVIEW), { viewport: { width: 1200, height: 630 } });
server.close();
server.closeAllConnections();
