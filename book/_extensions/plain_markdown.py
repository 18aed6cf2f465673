"""Write MyST as the Markdown that every viewer of notebooks knows.

GitHub, Colab, VS Code and nbviewer show the roles and directives of MyST as
they stand in the source. The blocks are found by the parser that makes the
pages. Each of them that only MyST knows is written anew, and all other lines
stay as they are::

    :::{admonition} Bug             > **Bug**
    :class: bug                     >
    See {doc}`overlap`.             > See [Overlap](https://…/overlap.html).
    :::
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from docutils.parsers.rst import Directive
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.directives import parse_directive_text
from myst_parser.parsers.mdit import create_md_parser

# As in `_config.yml`.
EXTENSIONS = {"colon_fence", "deflist", "dollarmath"}
MYST = create_md_parser(
    MdParserConfig(enable_extensions=EXTENSIONS), RendererHTML
)

# From a role, such as "{doc}`overlap`", to Markdown.
InWords = Callable[[str], str]


class AnyDirective(Directive):
    """A directive of which only its parts are asked."""

    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = {"class": str, "label": str}  # noqa: RUF012
    has_content = True


class Box(NamedTuple):
    """A directive that a page shows as a box.

    ``title`` is what follows its name, ``label`` and ``classes`` are its
    options, and ``body`` is MyST.
    """

    kind: str
    title: str
    label: str
    classes: list[str]
    body: str


def read_box(token: Token) -> Box | None:
    """Return the box that a fence is; None for a fence of code."""
    match = re.fullmatch(r"\{(.+?)\}\s*(.*)", token.info)
    if match is None:
        return None
    kind, title = match.groups()
    parts = parse_directive_text(
        AnyDirective, title, token.content, validate_options=False
    )
    return Box(
        kind=kind,
        title=title,
        label=parts.options.get("label", ""),
        classes=parts.options.get("class", "").split(),
        body="\n".join(parts.body),
    )


def write_box(token: Token, lines: list[str], in_words: InWords) -> list[str]:
    """Write a directive as a quote with a bold title, folded if a page does.

    The cards of a grid become quotes, one below the other.
    """
    box = read_box(token)
    if box is None:
        return lines
    body = plain_markdown(box.body, in_words).strip("\n").split("\n")
    if box.kind == "grid":
        return body
    title = plain_markdown(box.title, in_words)
    if box.label:
        title = f"{in_words(f'{{ref}}`{box.label}`')}: {title}"
    if "dropdown" in box.classes:
        title = MarkdownIt().renderInline(title)
        summary = f"<summary><strong>{title}</strong></summary>"
        body = ["<details>", summary, "", *body, "", "</details>"]
    elif title:
        body = [f"**{title}**", "", *body]
    return [f"> {line}".rstrip() for line in body]


def write_inline(
    token: Token, lines: list[str], in_words: InWords
) -> list[str]:
    """Write the roles in a text as Markdown."""
    text = "\n".join(lines)
    for child in token.children or []:
        if child.type == "myst_role":
            role = f"{{{child.meta['name']}}}`{child.content}`"
            # A line may end inside of it.
            places = r"\s+".join(map(re.escape, role.split()))
            words = in_words(role)
            text = re.sub(places, lambda _, words=words: words, text)
    return text.split("\n")


def write_formula(
    token: Token, lines: list[str], in_words: InWords
) -> list[str]:
    """Write the number of a formula in it, in place of its label."""
    number = re.search(r"\(([\d.]+)\)", in_words(f"{{eq}}`{token.info}`"))
    tag = [rf"\tag{{{number[1]}}}"] if number else []
    last = lines[-1].rpartition("$$")[0]
    return [*lines[:-1], *filter(None, [last]), *tag, "$$"]


def write_comment(
    token: Token, lines: list[str], in_words: InWords
) -> list[str]:
    """Leave out a comment: that of a Predict box holds the answer."""
    return [] if token.content.startswith("<!--") else lines


def write_nothing(
    token: Token, lines: list[str], in_words: InWords
) -> list[str]:
    """Leave out what no reader of a page sees."""
    return []


# How each block is written that not every viewer knows, by its token.
WRITERS = {
    "inline": write_inline,
    "fence": write_box,
    "colon_fence": write_box,
    "math_block_label": write_formula,
    "html_block": write_comment,
    "myst_target": write_nothing,
    "myst_line_comment": write_nothing,
    "myst_block_break": write_nothing,
}


def plain_markdown(text: str, in_words: InWords) -> str:
    r"""Return a text in MyST as Markdown without roles and directives.

    Args:
        text: The source of a cell, or a part of it.
        in_words: Returns the Markdown that takes the place of a role.

    Example:
        >>> from plain_markdown import plain_markdown
        >>> print(plain_markdown("(here)=\n## See {doc}`overlap`", str.upper))
        ## See {DOC}`OVERLAP`
    """
    lines = text.split("\n")
    # From the last one to the first, so that the lines before keep their
    # numbers.
    for token in reversed(MYST.parse(text)):
        if token.type in WRITERS and token.map:
            first, end = token.map
            writer = WRITERS[token.type]
            lines[first:end] = writer(token, lines[first:end], in_words)
    return "\n".join(lines)
