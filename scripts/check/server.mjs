// Serves the built site on a free port of this machine, compressed, as the
// servers of static pages do.
import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { createGzip } from "node:zlib";

const TYPES = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".woff2": "font/woff2",
};

// These are compressed already.
const PACKED = /woff2|png/;

/** The file that a path of the site stands for. */
function fileOf(root, url) {
  const path = decodeURIComponent(new URL(url, "http://site").pathname);
  const file = join(root, normalize(path));
  return path.endsWith("/") ? join(file, "index.html") : file;
}

export async function serve(root) {
  const server = createServer((request, response) => {
    const file = fileOf(root, request.url);
    if (!statSync(file, { throwIfNoEntry: false })?.isFile()) {
      response.writeHead(404).end();
      return;
    }
    const type = TYPES[extname(file)] ?? "application/octet-stream";
    const packed = /\bgzip\b/.test(request.headers["accept-encoding"]) &&
      !PACKED.test(type);
    response.writeHead(200, {
      "content-type": type, ...packed && { "content-encoding": "gzip" },
    });
    const stream = createReadStream(file);
    (packed ? stream.pipe(createGzip()) : stream).pipe(response);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return { origin: `http://127.0.0.1:${server.address().port}`, server };
}
