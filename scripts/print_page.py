"""Put the whole book on one page, `print.html`, beside its other pages.

Sphinx's single page has the frame of the site around it, and headings of
different chapters share an id. Here it becomes a plain page: the contents,
then the chapters one after another, solutions unfolded, every id unique. It
uses the styles, scripts and images of the site, so it is one more file and no
more.
"""

import re
from collections import Counter
from pathlib import Path

from bs4 import BeautifulSoup, Tag

# Sphinx writes the page into the folder of the first document, with addresses
# as if it lay at the top.
SINGLE = Path("singlehtml", "book", "index.html")
# Beside the page to print: what it takes its styles and scripts from, for
# Sphinx names those of a single page otherwise when it builds it again.
NEIGHBOUR = "search.html"
SCRIPTS = ("katex", "auto-render", "a11y")  # formulas, and wide boxes
FRAME = """<!DOCTYPE html>
<html lang="en" data-theme="light"><head><meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title></title></head>
<body class="print-page"><main class="bd-content"><article class="bd-article">
</article></main></body></html>
"""


def owners(article: Tag) -> dict[int, str]:
    """Return for each tag, by `id`, the name of the page it comes from."""
    names: dict[int, str] = {}
    page = "index"
    for tag in article.find_all(True):
        anchor = str(tag.get("id", ""))
        if anchor.startswith("document-"):
            page = anchor.rpartition("/")[2]
        names[id(tag)] = page
    return names


def make_ids_unique(article: Tag) -> None:
    """Put the name of its page before an id that occurs more than once.

    A link to such an id means that of its own page, or else the first.
    """
    page_of = owners(article)
    tags = article.find_all(id=True)
    count = Counter(str(tag["id"]) for tag in tags)
    new: dict[tuple[str, str], str] = {}
    first: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for tag in tags:
        old, page = str(tag["id"]), page_of[id(tag)]
        if count[old] == 1:
            continue
        name = f"{page}--{old}"
        taken[name] += 1
        if taken[name] > 1:
            name += f"-{taken[name]}"
        tag["id"] = name
        new.setdefault((page, old), name)
        first.setdefault(old, name)
    for link in article.find_all("a", href=True):
        page, anchor = page_of[id(link)], str(link["href"]).partition("#")[2]
        if anchor in first and str(link["href"]).startswith("#"):
            link["href"] = "#" + new.get((page, anchor), first[anchor])


def point_inside(article: Tag) -> None:
    """Redirect links between pages of the book to places on this one."""
    for link in article.find_all("a", href=True):
        href = str(link["href"])
        if href.startswith(f"{SINGLE.parent.name}/index.html#"):
            link["href"] = "#" + href.partition("#")[2]
        elif href.endswith("print.html"):
            link["href"] = "#"


def unfold(article: Tag) -> None:
    """Open what is folded, and remove what only a click could use."""
    for details in article.find_all("details"):
        details["open"] = ""
    for box in article.find_all(class_="dropdown"):
        box["class"] = [
            c
            for c in box.get_attribute_list("class")
            if c not in ("dropdown", "toggle")
        ]
    for link in article.find_all("a", class_="headerlink"):
        link.decompose()


def contents(article: Tag, page: BeautifulSoup) -> Tag:
    """Return a list of links to the chapters and pages."""
    names = page.new_tag("ol", attrs={"class": "print-contents"})
    for anchor in article.find_all("span", id=re.compile("^document-")):
        heading = anchor.find_next("h2")
        entry = page.new_tag("li")
        link = page.new_tag("a", href=f"#{anchor['id']}")
        link.string = heading.get_text().strip()
        entry.append(link)
        names.append(entry)
    around = page.new_tag("nav", attrs={"aria-label": "Contents"})
    around.append(names)
    return around


def printable(single: str, neighbour: str) -> str:
    """Return the page to print for Sphinx's single page `single`.

    Its styles and scripts are those of `neighbour`, a page of the site.
    """
    source = BeautifulSoup(single, "html.parser")
    beside = BeautifulSoup(neighbour, "html.parser")
    page = BeautifulSoup(FRAME, "html.parser")
    page.title.string = str(source.title.string)
    for sheet in beside.find_all("link", rel="stylesheet"):
        page.head.append(sheet)
    for script in beside.find_all("script", src=True):
        if any(name in str(script["src"]) for name in SCRIPTS):
            page.head.append(script)
    article = source.article
    point_inside(article)
    make_ids_unique(article)
    unfold(article)
    article.h1.insert_after(contents(article, page))
    page.article.extend(list(article.contents))
    return str(page)


def write_page(build: Path) -> None:
    """Write `html/print.html` into a folder that jupyter-book has filled."""
    target = build / "html" / "print.html"
    texts = [
        path.read_text(encoding="utf-8")
        for path in (build / SINGLE, target.with_name(NEIGHBOUR))
    ]
    target.write_text(printable(*texts), encoding="utf-8")
    print(f"the whole book on one page: {target}")
