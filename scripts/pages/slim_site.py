"""Take out of a built site what no page of it uses.

These are the maps from scripts back to their sources, the script of Font
Awesome, and the icons of its fonts that no page shows: of some two thousand,
a few dozen are left.
"""

import re
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

STYLES = "styles/pydata-sphinx-theme.css"
FONTS = "vendor/fontawesome/webfonts"
UNUSED = ("**/*.map", "scripts/fontawesome.js*")

MAP = re.compile(r"\n?(//# |/\*# )sourceMappingURL=\S+( \*/)?\n?")
# `.fa-gear:before,.fa-cog:before{content:"\f013"}`
ICON = re.compile(
    r'(?P<names>(?:\.fa-[\w-]+:before,?)+)\{content:"(?P<sign>\\\w+|.)"\}'
)
NAME = re.compile(r"\.(fa-[\w-]+):before")
CLASSES = re.compile(r'class="([^"]*\bfa-[^"]*)"')
# A sign that a style sheet names by its number, or holds as it is. The signs
# of icons lie in an area that Unicode leaves to fonts.
NUMBER = re.compile(r"\\u?([ef][0-9a-f]{3})\b", re.IGNORECASE)
SIGN = re.compile("[\ue000-\uf8ff]")
SOURCES = re.compile(
    r"src:url\((?P<file>[^)]*/fa-[\w-]+)\.woff2\)[^,}]*,"
    r'url\([^)]*\.ttf\) format\("truetype"\)'
)


def names_used(site: Path) -> set[str]:
    """Return the classes of icons that stand in the pages."""
    pages = site.rglob("*.html")
    found = (CLASSES.findall(page.read_text("utf-8")) for page in pages)
    return {name for all_ in found for text in all_ for name in text.split()}


def without_icons(styles: str, used: set[str]) -> tuple[str, set[int]]:
    """Return a style sheet without unused icons, and the signs of the others.

    Args:
        styles: The style sheet of the theme.
        used: Classes of icons, such as "fa-gear".
    """
    signs = set()

    def kept(rule: re.Match[str]) -> str:
        if used.isdisjoint(NAME.findall(rule["names"])):
            return ""
        number = rule["sign"].lstrip("\\")
        signs.add(int(number, 16) if len(number) > 1 else ord(number))
        return rule[0]

    return ICON.sub(kept, styles), signs


def signs_named(folder: Path) -> set[int]:
    """Return the signs of icons that style sheets in a folder name or hold."""
    signs = set()
    for path in folder.rglob("*.css"):
        text = path.read_text("utf-8")
        signs |= {int(number, 16) for number in NUMBER.findall(text)}
        signs |= {ord(sign) for sign in SIGN.findall(text)}
    return signs


def write_subset(font: Path, signs: set[int]) -> None:
    """Write what a font has of some signs next to it, as WOFF."""
    few = subset.Subsetter(
        subset.Options(layout_features=[], notdef_outline=True)
    )
    few.populate(unicodes=signs)
    with TTFont(font, recalcTimestamp=False) as whole:
        few.subset(whole)
        whole.flavor = "woff"
        whole.save(font.with_suffix(".woff"))


def slim(site: Path) -> None:
    """Remove and shrink files of a built site."""
    static = site / "_static"
    styles = static / STYLES
    text, signs = without_icons(styles.read_text("utf-8"), names_used(site))
    text = SOURCES.sub(r'src:url(\g<file>.woff) format("woff")', text)
    styles.write_text(text, encoding="utf-8")
    signs |= signs_named(static)
    for font in (static / FONTS).glob("*.ttf"):
        write_subset(font, signs)
        font.unlink()
        font.with_suffix(".woff2").unlink()
    for pattern in UNUSED:
        for path in static.glob(pattern):
            path.unlink()
    for path in [*static.rglob("*.js"), *static.rglob("*.css")]:
        text = path.read_text("utf-8")
        if MAP.search(text):
            path.write_text(MAP.sub("\n", text), encoding="utf-8")
