"""The controls of a live figure, as HTML for the page.

They stand in the built page, so that nothing moves when `figure.js` arrives
and makes them work. Without a script they are hidden, by a class of the theme.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

HELP = "Choose a box, then move it: by these buttons, or by Alt and an arrow."
# What moves a word of a list: the words of the button, and its way: lines
# down, places to the right.
MOVERS = (
    ("← earlier", "0 -1"),
    ("later →", "0 1"),
    ("↑ up", "-1 0"),
    ("down ↓", "1 0"),
)


def written(value: float) -> str:
    """Write a number as a field shows it: "16,384", "0.25"."""
    whole, point, part = f"{value:,.9f}".partition(".")
    part = part.rstrip("0")
    return f"{whole}{point}{part}" if part else whole


def element(tag: str, content: str = "", **attributes: Any) -> str:
    """Return an element of HTML.

    Args:
        tag: Its name.
        content: HTML.
        attributes: A name may have "_" for "-", and "_" at its end. True
            stands for an attribute without a value; None and False, for none.
    """
    words = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        words += (
            f" {name}" if value is True else f' {name}="{escape(str(value))}"'
        )
    closed = "" if tag == "input" else f"{content}</{tag}>"
    return f"<{tag}{words}>{closed}"


def button(words: str, **attributes: Any) -> str:
    """Return a button that sends no form."""
    return element("button", escape(words), type="button", **attributes)


def choice(control: Mapping[str, Any], place: str) -> str:
    """Return a list to choose from, with its label."""
    options = "".join(
        element("option", escape(word), selected=word == control["start"])
        for word in control["options"]
    )
    label = element("label", escape(control["label"]), for_=place)
    return label + element("select", options, id=place)


def number(control: Mapping[str, Any], place: str) -> str:
    """Return a slider and a field, with their label."""
    unit = control["unit"]
    words = f"{control['label']}, {unit}" if unit else control["label"]
    at = nearest(control["start"], control["stops"])
    value = written(control["start"])
    slider = element(
        "input",
        type="range",
        max=len(control["stops"]) - 1,
        value=at,
        aria_label=words,
        aria_valuetext=f"{value} {unit}".strip(),
        autocomplete="off",
    )
    field = element(
        "input",
        id=place,
        type="text",
        inputmode="decimal",
        value=value,
        autocomplete="off",
    )
    return element("label", escape(words), for_=place) + slider + field


def nearest(value: float, stops: Sequence[float]) -> int:
    """Return where the first stop stands that is not below a value."""
    past = (i for i, stop in enumerate(stops) if stop >= value)
    return next(past, len(stops))


def lists(control: Mapping[str, Any], place: str) -> str:
    """Return lists of words, one below the other, and what moves them."""
    movers = "".join(button(words, data_way=way) for words, way in MOVERS)
    label = control["label"]
    lines = "".join(
        element(
            "div",
            element("span", escape(f"{label} {at}"))
            + "".join(map(button, line.split())),
            class_="live-line",
        )
        for at, line in enumerate(control["start"].split("\n"))
    )
    rules = element("p", escape(control["rules"])) if control["rules"] else ""
    return (
        rules
        + element("p", HELP)
        + element("div", movers, class_="live-buttons")
        + element("div", lines, role="group", aria_label=f"{label}s", id=place)
    )


KINDS = {"choice": choice, "number": number, "lists": lists}


def row(
    control: Mapping[str, Any], figure: str, starts: Mapping[str, Any]
) -> str:
    """Return a control; one that means nothing at the start is hidden."""
    name, kind = control["name"], control["kind"]
    only = control["shown_for"]
    return element(
        "div",
        KINDS[kind](control, f"{figure}-{name}"),
        class_="live-wide" if kind == "lists" else "live-control",
        data_control=name,
        hidden=only is not None and starts[only[0]] not in only[1],
    )


def controls(told: Mapping[str, Any], figure: str) -> str:
    """Return the controls and the presets of a figure.

    Args:
        told: What the figure tells the page: `LiveFigure.for_page`.
        figure: The id of the figure.
    """
    starts = {
        control["name"]: control["start"] for control in told["controls"]
    }
    presets = [button(words, data_preset=words) for words in told["presets"]]
    presets.append(button("start again", data_preset=""))
    open_ = [c for c in told["controls"] if not c["folded"]]
    folded = [c for c in told["controls"] if c["folded"]]
    more = "".join(row(control, figure, starts) for control in folded)
    title = f"{figure}-title"
    return element(
        "div",
        element("p", escape(told["title"]), class_="live-title", id=title)
        + element("div", "".join(presets), class_="live-buttons")
        + element("p", class_="live-chosen", hidden=True)
        + "".join(row(control, figure, starts) for control in open_)
        + (
            element(
                "details",
                element("summary", "More settings") + element("div", more),
                class_="live-wide",
            )
            if more
            else ""
        ),
        class_="live-controls pst-js-only",
        role="group",
        aria_labelledby=title,
    )
