"""A figure that a reader of the page can change, as the output of a cell."""

import json
from dataclasses import dataclass, field
from typing import Any

from dpbook.explore.figure import LiveFigure
from dpkit.sim.timeline.drawing import escape


@dataclass(repr=False)
class Live:
    """A figure as it is at its start, which is whole without a script."""

    figure: LiveFigure  #: the function and its controls
    #: What differs from the start of the figure.
    settings: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<live figure: {self.figure.title}>"

    def _repr_html_(self) -> str:
        shown = self.figure.ask(**self.settings)
        pictures = "".join(picture.svg for picture in shown.pictures)
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th>'
            + "".join(f"<td>{escape(value)}</td>" for value in values)
            + "</tr>"
            for name, *values in shown.facts
        )
        sent = self.figure.for_page(**self.settings)
        # In a script "</" would end it; JSON may have a backslash there.
        written = json.dumps(sent, ensure_ascii=False).replace("</", "<\\/")
        return (
            f'<figure class="live" aria-label="{escape(self.figure.title)}">'
            f'<div class="live-pictures">{pictures}</div>'
            f'<table class="live-facts"><tbody>{rows}</tbody></table>'
            f'<p class="live-sentence">{escape(shown.sentence)}</p>'
            f'<script type="application/json">{written}</script></figure>'
        )


def live(figure: LiveFigure, **settings: Any) -> Live:
    """Show a figure that readers of the built page can change.

    In a notebook, in print and without JavaScript it stands as it starts: at
    ``settings``, if that is not where it always does.

    Raises:
        ValueError: a setting is unknown, or nothing is shown for these.

    Example:
        >>> from dpbook.explore.pipeline import PIPELINE
        >>> live(PIPELINE, schedule="gpipe", micro_batches=4)
        <live figure: A step of a pipeline>
    """
    refused = figure.ask(**settings).refused
    if refused:
        raise ValueError(refused)
    return Live(figure, settings)
