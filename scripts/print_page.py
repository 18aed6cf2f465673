"""Put the whole book on one page, `print.html`, beside its other pages.

It consists of the articles of the built pages, in the order of the contents,
with solutions unfolded, headings one level deeper, and every id unique. It
uses the styles, scripts and images of the site, so it is one more file and no
more.
"""

import re
from collections import Counter
from pathlib import Path

from bs4 import BeautifulSoup, Tag

SCRIPTS = ("katex", "auto-render", "a11y")  # formulas, and wide boxes
FRAME = """<!DOCTYPE html>
<html lang="en" data-theme="light"><head><meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title></title></head>
<body class="print-page"><main class="bd-content"><article class="bd-article">
</article></main></body></html>
"""


def inside(href: str, page: str, ids: dict[tuple[str, str], str]) -> str:
    """Return where a link on a page leads, if that is a place of the book."""
    target, _, anchor = href.partition("#")
    name = target.removesuffix(".html") if target else page
    if target == "print.html":
        return "#"
    if anchor:
        new = ids.get((name, anchor))
        return f"#{new}" if new else href
    return f"#document-{name}" if (name, "") in ids else href


def unfold(article: Tag) -> None:
    """Open what is folded, and remove what only a click could use."""
    for details in article.find_all("details"):
        details["open"] = ""
    for box in article.find_all(class_="dropdown"):
        names = box.get_attribute_list("class")
        box["class"] = [c for c in names if c not in ("dropdown", "toggle")]
    for part in article.select(
        "a.headerlink, a:has(> .viewcode-link), figure.live > script,"
        ".live-controls, .live-steps"
    ):
        part.decompose()


def contents(articles: dict[str, Tag], page: BeautifulSoup) -> Tag:
    """Return a list of links to the chapters and pages."""
    around = page.new_tag("nav", attrs={"aria-label": "Contents"})
    names = page.new_tag("ol", attrs={"class": "print-contents"})
    for name, article in articles.items():
        entry = page.new_tag("li")
        link = page.new_tag("a", href=f"#document-{name}")
        link.string = article.h1.get_text().strip()
        entry.append(link)
        names.append(entry)
    around.append(names)
    return around


def printable(pages: dict[str, str]) -> str:
    """Return the page to print for the built pages, by name and in order."""
    # They lie in a folder of the site, and the page to print beside it.
    soups = {
        name: BeautifulSoup(html.replace('="../', '="'), "html.parser")
        for name, html in pages.items()
    }
    articles = {name: soup.article for name, soup in soups.items()}
    first, *rest = articles
    tags = [
        (n, tag) for n, a in articles.items() for tag in a.find_all(id=True)
    ]
    count = Counter(str(tag["id"]) for _, tag in tags)
    ids = {(name, ""): "" for name in pages}
    for name, tag in tags:
        old = str(tag["id"])
        tag["id"] = old if count[old] == 1 else f"{name}--{old}"
        ids[name, old] = str(tag["id"])
    page = BeautifulSoup(FRAME, "html.parser")
    for name, article in articles.items():
        unfold(article)
        for link in article.find_all("a", href=True):
            link["href"] = inside(str(link["href"]), name, ids)
    page.title.string = articles[first].h1.get_text()
    sheets = {
        str(link["href"]): link
        for soup in soups.values()
        for link in soup.head.find_all("link", rel="stylesheet")
    }
    page.head.extend(sheets.values())
    scripts = {
        str(script["src"]): script
        for soup in soups.values()
        for script in soup.head.find_all("script", src=True)
        if any(name in str(script["src"]) for name in SCRIPTS)
    }
    page.head.extend(scripts.values())
    listed = {name: articles[name] for name in rest}
    articles[first].h1.insert_after(contents(listed, page))
    for name, article in articles.items():
        if name != first:
            for heading in article.find_all(re.compile("^h[1-5]$")):
                heading.name = f"h{int(heading.name[1]) + 1}"
        anchor = page.new_tag("span", id=f"document-{name}")
        page.article.extend([anchor, *article.contents])
    return str(page)


def write_page(folder: Path) -> None:
    """Write `print.html` into the site that was built in a folder."""
    toc = (folder / "_toc.yml").read_text(encoding="utf-8")
    files = re.findall(r"(?:root|- file): (\S+)", toc)
    site = folder / "_build" / "html"
    pages = {
        Path(file).name: (site / f"{file}.html").read_text(encoding="utf-8")
        for file in files
    }
    target = site / "print.html"
    target.write_text(printable(pages), encoding="utf-8")
    print(f"the whole book on one page: {target}")
