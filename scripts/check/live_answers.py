"""Print what live figures show, for `scripts/check/live.mjs` to compare with.

Usage: python scripts/check/live_answers.py < ASKED > ANSWERS

ASKED is a JSON list of what figures tell their pages. For each figure the
program prints a list of [settings, answer]. An answer is the text that the
page gets. First come those of the frames, in their order, then those of
random settings. Where a figure keeps what was before, the settings tell it.
"""

import json
import random
import sys
from typing import Any

from dpbook.explore.all import FIGURES
from dpbook.explore.figure import Choice, Control, Number

COUNT = 50


def some_value(control: Control, chance: random.Random) -> Any:
    """Return a value: of a slider, of a field, or in another order."""
    if isinstance(control, Choice):
        return chance.choice(control.options)
    if isinstance(control, Number):
        first = control.stops[0]
        last = control.stops[-1]
        if all(isinstance(stop, int) for stop in control.stops):
            field: float = chance.randint(int(first), int(last))
        else:
            field = round(chance.uniform(first, last), 2)
        return chance.choice([*control.stops, field])
    lines = [line.split() for line in control.start.splitlines()]
    line = chance.choice([line for line in lines if line])
    line.append(line.pop(chance.randrange(len(line))))
    return "\n".join(map(" ".join, lines))


def answers(told: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return settings of a figure, and what the page should get for them."""
    figure = FIGURES[told["name"]]
    starts = {c["name"]: c["start"] for c in told["controls"]}
    before = {"before": starts} if figure.keeps_before else {}
    found = [
        ({**starts, **move, **before}, shown.as_json())
        for move, shown in figure.frames(**starts)
    ]
    chance = random.Random(told["name"])
    for _ in range(COUNT):
        settings = {
            name: some_value(control, chance)
            for name, control in figure.controls.items()
        }
        asked = {**settings, **before}
        found.append((asked, figure.ask(**asked).as_json()))
        if figure.keeps_before:
            before = {"before": chance.choice([starts, settings])}
    return found


if __name__ == "__main__":
    json.dump([answers(told) for told in json.load(sys.stdin)], sys.stdout)
