"""A figure that a reader can change: a function and its controls.

The function takes settings and returns what is shown. The page knows nothing
of it. It gets a list of the controls, sends their settings, and shows what
comes back::

    settings     {"schedule": "1f1b", "devices": 4}
    shown        pictures, facts, a sentence; or what is refused, and where

So the stored output of a notebook, the page and the tests have one source.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from dpkit.sim.timeline.drawing import Drawing
from dpkit.units import check_known


class SettingError(ValueError):
    """Settings that show nothing, and the control or word that is at fault."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class Number(NamedTuple):
    """A slider with a field next to it.

    The slider stands at one of ``stops``, which grow. The field takes any
    number from the first to the last of them; a whole one, if all stops are.
    ``shown_for`` is another setting and the values of it for which this one
    means something: ``("schedule", ("interleaved",))``.
    """

    label: str
    start: float
    stops: Sequence[float]
    unit: str = ""
    shown_for: tuple[str, Sequence[str]] | None = None

    @property
    def moves(self) -> Sequence[float]:
        """The values that the slider can be moved to."""
        return self.stops

    def accept(self, name: str, value: Any) -> float:
        """Return a value that the page has sent, in the type of the stops.

        In the JSON of a browser 1.0 is written as 1.
        """
        kind = int if all(isinstance(s, int) for s in self.stops) else float
        first = self.stops[0]
        last = self.stops[-1]
        fits = isinstance(value, int | float) and first <= value <= last
        if not fits or kind(value) != value:
            whole = "whole " if kind is int else ""
            raise SettingError(
                f"{self.label} is a {whole}number from {first:,} to {last:,} "
                f"({self.label}: {value})",
                name,
            )
        return kind(value)


class Choice(NamedTuple):
    """One of a few words; ``shown_for`` is as in :class:`Number`."""

    label: str
    start: str
    options: Sequence[str]
    shown_for: tuple[str, Sequence[str]] | None = None

    @property
    def moves(self) -> Sequence[str]:
        """The options."""
        return self.options

    def accept(self, name: str, value: Any) -> str:
        """Return what the page sent, if it is one of the options."""
        if value not in self.options:
            known = ", ".join(self.options)
            raise SettingError(
                f"unknown {self.label} ({self.label}: {value}, "
                f"known: {known})",
                name,
            )
        return str(value)


class Lists(NamedTuple):
    """Lists of words, a line each, to be put in order by ``rules``."""

    label: str
    start: str
    rules: str = ""
    shown_for: tuple[str, Sequence[str]] | None = None

    @property
    def moves(self) -> Sequence[str]:
        """Nothing: the orders are too many to be stored with the page."""
        return ()

    def accept(self, name: str, value: Any) -> str:
        """Return what the page sent, if it has the words of the start."""
        words = self.start.split()
        if sorted(str(value).split()) != sorted(words):
            raise SettingError(f"words are missing or new ({value!r})", name)
        return str(value)


Control: TypeAlias = Number | Choice | Lists


def preset(controls: Mapping[str, Control], **changes: Any) -> dict[str, Any]:
    """Return all settings, so that a preset is the same wherever one is.

    Args:
        controls: Those of a figure; their settings are as at its start.
        changes: Other settings, by name.
    """
    return {name: c.start for name, c in controls.items()} | changes


@dataclass
class Shown:
    """What a figure shows.

    Attributes:
        pictures: One below the other.
        facts: A name and a value each, read next to the pictures; or a value
            for each of what is compared.
        sentence: What it comes to. It is spoken after a change.
        refused: Why there is nothing to show; then all else is empty.
        place: The control, or the word of a list, that is at fault.
    """

    pictures: Sequence[Drawing] = ()
    facts: Sequence[tuple[str, ...]] = ()
    sentence: str = ""
    refused: str = ""
    place: str = ""

    def as_json(self) -> str:
        """Write it for the page: pictures as SVG."""
        found = {**vars(self), "pictures": [p.svg for p in self.pictures]}
        return json.dumps(found, ensure_ascii=False)


class Before(NamedTuple):
    """What a reader compares with: what was shown before a control moved.

    ``settings`` are all of them. ``changes`` name those that have changed, and
    what they were: "images: 256, link: pcie3".
    """

    settings: Mapping[str, Any]
    changes: str


@dataclass(frozen=True)
class LiveFigure:
    """A function from settings to what is shown, and a control for each.

    Args:
        name: One word, for the address of the page.
        title: What the figure is about.
        show: Takes all settings by name. It may raise a ``ValueError``, such
            as :class:`SettingError`.
        controls: By the name of their setting.
        presets: Words for the reader, and the settings that they stand for.
        open_at_start: The controls to begin with; the others unfold. None
            named: all stand open.
        keeps_before: Whether ``show`` takes ``before`` as well: a
            :class:`Before`, or by default None.

    Example:
        >>> from dpbook.explore.figure import LiveFigure, Number, Shown
        >>> def double(n):
        ...     return Shown(sentence=f"Twice {n} is {2 * n}.")
        >>> figure = LiveFigure(
        ...     "double", "Twice", double, {"n": Number("n", 1, (1, 2, 4))}
        ... )
        >>> figure.ask(n=4).sentence
        'Twice 4 is 8.'
        >>> figure.ask(m=4)
        Traceback (most recent call last):
        ValueError: unknown setting (setting: 'm', known: n)
    """

    name: str
    title: str
    show: Callable[..., Shown]
    controls: Mapping[str, Control]
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    open_at_start: tuple[str, ...] = ()
    keeps_before: bool = False

    @property
    def start(self) -> dict[str, Any]:
        """The settings before the reader changes any."""
        return {name: c.start for name, c in self.controls.items()}

    def ask(
        self, before: Mapping[str, Any] | None = None, **settings: Any
    ) -> Shown:
        """Return what the figure shows for some settings.

        Args:
            before: The settings to compare with, where ``keeps_before``.
            settings: Those that are not given are as at the start.
        """
        for name in settings:
            check_known("setting", name, self.controls)
        try:
            now = self._accept(settings)
            if before and self.keeps_before:
                return self.show(**now, before=self._before(before, now))
            return self.show(**now)
        except ValueError as error:
            place = getattr(error, "place", "")
            return Shown(refused=str(error), place=place)

    def _accept(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        at = {**self.start, **settings}
        return {n: c.accept(n, at[n]) for n, c in self.controls.items()}

    def _before(
        self, sent: Mapping[str, Any], now: Mapping[str, Any]
    ) -> Before | None:
        """Return what was before, if that was not the same."""
        was = self._accept(sent)
        changes = [
            f"{control.label}: {_written(was[name])}"
            for name, control in self.controls.items()
            if was[name] != now[name]
        ]
        return Before(was, ", ".join(changes)) if changes else None

    def frames(self, **settings: Any) -> list[tuple[dict[str, Any], Shown]]:
        """Return what each first touch shows, with what it sets.

        A touch moves one control, or chooses a preset; all else is as at the
        start. The page can show these without asking Python. Where a figure
        keeps what was before, that is the start.
        """
        at = {**self.start, **settings}
        moves = [
            {name: value}
            for name, control in self.controls.items()
            if _is_shown(control, at)
            for value in control.moves
            if value != at[name]
        ]
        moves += [dict(p) for p in self.presets.values() if p not in moves]
        return [(move, self.ask(at, **{**at, **move})) for move in moves]

    def for_page(self, **settings: Any) -> dict[str, Any]:
        """Return the controls and the presets, as JSON for the page.

        ``settings`` are those at which the controls stand; others are as at
        the start.
        """
        starts = {**self.start, **settings}
        fields = {
            "name": self.name,
            "title": self.title,
            "presets": {w: dict(s) for w, s in self.presets.items()},
            "controls": [
                {
                    "kind": type(control).__name__.lower(),
                    "name": name,
                    **control._asdict(),
                    "start": starts[name],
                    "folded": name not in (self.open_at_start or starts),
                }
                for name, control in self.controls.items()
            ],
        }
        more = {"keeps_before": True} if self.keeps_before else {}
        return {**fields, **more}


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _is_shown(control: Control, settings: Mapping[str, Any]) -> bool:
    if control.shown_for is None:
        return True
    other, values = control.shown_for
    return settings[other] in values
