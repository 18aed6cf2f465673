"""What parts have done: kept next to the report, so that a call can go on."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_report_parts.plan import ROOT, Part

PASSED = "passed"
FAILED = "failed"
LATE = "ended at its limit"
CUT = "cut off at the end of its call"


@dataclass(frozen=True)
class Record:
    """What a part has done.

    Attributes:
        outcome: One of the four above.
        seconds: How long it took.
        machine: GPUs and torch; on others it is worth nothing.
        code: A digest of the code that ran.
    """

    outcome: str
    seconds: float
    machine: str
    code: str


def digest(root: Path = ROOT) -> str:
    """Return a name for the code, committed or not, and where git is not."""
    found = hashlib.sha256()
    for pattern in (
        "dpkit/**/*.py",
        "book/dpbook/**/*.py",
        "tests/**/*.py",
        "book/*.ipynb",
    ):
        for path in sorted(root.glob(pattern)):
            found.update(path.read_bytes())
    return found.hexdigest()[:8]


class Records:
    """The records in a folder.

    Args:
        folder: Where they are, and the logs of the parts.
        machine: On what this call runs: GPUs and torch.
        code: A digest of the code as it is.
    """

    def __init__(self, folder: Path, machine: str, code: str) -> None:
        self.folder = folder
        self.code = code
        self._machine = machine
        folder.mkdir(parents=True, exist_ok=True)

    def log(self, part: Part) -> Path:
        """Return where the output of a part is."""
        return self.folder / f"{part.name}.log"

    def save(self, part: Part, outcome: str, seconds: float) -> None:
        """Keep what a part has done; in one step, as calls are killed."""
        record = Record(outcome, round(seconds, 1), self._machine, self.code)
        path = self._path(part)
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
        draft.replace(path)

    def find(self, part: Part) -> Record | None:
        """Return what a part has done, if it has, on what there is now."""
        try:
            found = Record(**json.loads(self._path(part).read_text("utf-8")))
        except FileNotFoundError:
            return None
        return found if found.machine == self._machine else None

    def left(
        self, parts: Sequence[Part], num_gpus: int, again: Sequence[str] = ()
    ) -> list[Part]:
        """Return the parts to run, in order.

        Args:
            parts: All parts.
            num_gpus: How many GPUs there are.
            again: Names of parts to run though they are done, "failed" for
                those that did not pass, or "all".
        """
        return [
            part
            for part in parts
            if part.num_gpus <= num_gpus and not self._done(part, again)
        ]

    def _done(self, part: Part, again: Sequence[str]) -> bool:
        record = self.find(part)
        if record is None or record.outcome == CUT:
            return False
        if "failed" in again and record.outcome != PASSED:
            return False
        return not {"all", part.name} & set(again)

    def _path(self, part: Part) -> Path:
        return self.folder / f"{part.name}.record"
