"""All live figures by name, and the one function that the pages call.

The page sends a figure's name and settings as JSON, and shows what returns.
"""

import json

from dpbook.explore.calculator import CALCULATOR
from dpbook.explore.collectives import COLLECTIVES
from dpbook.explore.decision import DECISION
from dpbook.explore.figure import LiveFigure
from dpbook.explore.memory import MEMORY
from dpbook.explore.pipeline import PIPELINE
from dpbook.explore.planner import PLANNER
from dpbook.explore.puzzles import BUCKETS, MESSAGES, ORDER, PLACEMENT
from dpbook.explore.ring import RING
from dpbook.explore.step import STEP
from dpkit.units import check_known

_MODELS = (
    *(STEP, PIPELINE, COLLECTIVES, DECISION),
    *(PLANNER, CALCULATOR, MEMORY, RING),
)
_PUZZLES = (ORDER, BUCKETS, MESSAGES, PLACEMENT)

FIGURES: dict[str, LiveFigure] = {f.name: f for f in (*_MODELS, *_PUZZLES)}


def answer(question: str) -> str:
    """Answer a page: JSON of a figure's name and settings in, of Shown out.

    Example:
        >>> found = answer('{"figure": "pipeline", "settings": {"hop": 1}}')
        >>> sorted(json.loads(found))
        ['facts', 'pictures', 'place', 'refused', 'sentence']
    """
    request = json.loads(question)
    check_known("figure", request["figure"], FIGURES)
    return FIGURES[request["figure"]].ask(**request["settings"]).as_json()
