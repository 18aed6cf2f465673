"""The wrong answers to exercises that are known, and what refuses them.

They stand in ``tests/book/wrong_answers``: each is a function below a line
``# refused:`` with words of the check.
"""

import re
from pathlib import Path

from assignment.chapter import last_function

ROOT = Path(__file__).parent.parent.parent.parent
FOLDER = ROOT / "tests/book/wrong_answers"


def wrong_answers() -> dict[str, list[tuple[str, str]]]:
    """Return the known wrong answers, by the name of the exercise.

    Each is what the check says, or a part of it, and the code.

    Example:
        >>> from assignment.known import wrong_answers
        >>> why, code = wrong_answers()["cut_buckets"][0]
        >>> why
        'the last one ends at 13.2 ms'
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(FOLDER.rglob("*.py")):
        text = path.read_text("utf-8")
        parts = re.split(r"(?m)^# refused: (.*)\n", text)[1:]
        for why, code in zip(parts[::2], parts[1::2]):
            # A comment at the end belongs to the answer that follows.
            code = re.sub(r"(\n#.*)+\s*\Z", "", code).strip()
            found.setdefault(last_function(code), []).append((why, code))
    return found
