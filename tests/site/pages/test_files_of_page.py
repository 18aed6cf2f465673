"""A page loads what something on it uses; the site has nothing besides."""

import files_of_page
import pytest
import slim_site
from fontTools.ttLib import TTFont


@pytest.mark.parametrize(
    ("file", "body", "used"),
    [
        ("_static/katex/katex.min.css", '<span class="katex">x</span>', True),
        ("_static/katex/katex.min.css", "<p>katex</p>", False),
        ("_static/copybutton.js", '<div class="highlight">', True),
        ("_static/copybutton.js", "<p>no code</p>", False),
        ("_static/togglebutton.js", '<div class="toggle">', True),
        ("_static/togglebutton.js", "<p></p>", False),
        ("_static/exercise.css", '<div class="solution dropdown">', True),
        ("_static/exercise.css", '<p class="exercises">', False),
        ("_static/predict.js", '<form class="predict">', True),
        ("_static/predict.js", '<div class="prediction">', False),
        ("_static/katex-math.css", '<span class="katex">x</span>', False),
        ("_static/katex-math.css", '<span class="katex-display">', True),
        ("_static/sphinx-design.min.css", '<div class="sd-card">', True),
        ("_static/design-tabs.js", '<div class="sd-card">', False),
        ("_static/book.css", "<p></p>", True),
    ],
)
def test_a_file_is_for_what_stands_on_the_page(file, body, used):
    assert files_of_page.is_used(file, body) is used


STYLES = (
    '.fa-gear:before,.fa-cog:before{content:"\\f013"}'
    '.fa-0:before{content:"0"}'
    '.fa-user:before{content:"\\f007"}'
    ".fa-lg{font-size:1.25em}"
)


def test_icons_that_no_page_shows_are_left_out():
    kept, signs = slim_site.without_icons(STYLES, {"fa-cog", "fa-lg", "fa-0"})
    assert ".fa-user" not in kept
    assert ".fa-cog" in kept
    assert ".fa-lg" in kept
    assert signs == {0xF013, ord("0")}


def test_signs_are_found_as_numbers_and_as_they_are(tmp_path):
    style = 'a{content:"\\f188"} b{--bell:"\uf0f3"} c{content:"\\2192"}'
    (tmp_path / "a.css").write_text(style, encoding="utf-8")
    assert slim_site.signs_named(tmp_path) == {0xF188, 0xF0F3}


@pytest.mark.slow
def test_the_site_has_each_icon_that_its_pages_show(site):
    """And few others, in fonts that the style sheet names."""
    static = site / "_static"
    styles = (static / slim_site.STYLES).read_text("utf-8")
    _, signs = slim_site.without_icons(styles, slim_site.names_used(site))
    assert {0xF019, 0xF002} <= signs  # to download, to search
    named = slim_site.signs_named(static)
    assert {0xF188, 0xF1EC} <= named  # book.css
    assert 0xF0F3 in named  # a box without a kind of its own, by the theme
    fonts = {font.name: font for font in static.rglob("fa-*.*")}
    assert sorted(fonts) == [
        "fa-brands-400.woff",
        "fa-regular-400.woff",
        "fa-solid-900.woff",
    ]
    for name, font in fonts.items():
        assert f"{name})" in styles
        assert font.stat().st_size < 5_000
    drawn = [TTFont(font).getBestCmap().keys() for font in fonts.values()]
    assert signs | named <= set().union(*drawn)


@pytest.mark.slow
def test_the_site_has_no_maps_and_no_script_of_icons(site):
    assert not [*site.rglob("*.map")]
    assert not [*site.rglob("fontawesome.js")]
    # In `_static` lies a template of the theme, which is no page.
    for page in {*site.rglob("*.html")} - {*site.glob("_static/*")}:
        assert "fontawesome.js" not in page.read_text("utf-8")
