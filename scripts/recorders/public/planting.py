"""Mistakes that are planted into copies of scripts, and what is said of them.

``mistakes.toml`` has them: of each script, what makes one rank comparable with
several, and edits of the text.
"""

import re
import shutil
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from recorders.public.run import Runner, failure
from recorders.public.said import alarms
from recorders.public.table import HERE, PublicScript

TABLE = HERE / "mistakes.toml"
TOOLS = ("torchrun", "check")


class Edit(NamedTuple):
    """A place in a file, and what it becomes."""

    file: str  # from the folder in which the script is run
    find: str
    replace: str


@dataclass
class Plant:
    """A mistake in a script; or none, in a script that is right."""

    script: str  # its name in scripts.toml
    mistake: str
    version: str = "comparable"  # "as it is": nothing is edited
    edits: list[Edit] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)  # besides
    # What the right script is given that runs before, for its checkpoint.
    first: list[str] | None = None
    why: str = ""  # why it is missed, or an alarm is raised


@dataclass
class Mistakes:
    """The table: what mistakes there are, and where they are planted."""

    mistake: dict[str, dict[str, str]]  # its name -> "is" and "cause"
    script: dict[str, dict[str, Any]]  # its name -> what is common to plants
    plant: list[Plant]


def read_mistakes(path: Path = TABLE) -> Mistakes:
    """Return a table.

    Raises:
        TypeError: a row has a field that is not known.
    """
    table = tomllib.loads(path.read_text())
    for row in table["plant"]:
        row["edits"] = [Edit(**edit) for edit in row.get("edits", [])]
    table["plant"] = [Plant(**row) for row in table["plant"]]
    return Mistakes(**table)


def edit(folder: Path, edits: Iterable[Edit]) -> None:
    """Edit files of a folder.

    Raises:
        ValueError: a text is not there, or more than once.
    """
    for file, find, new in edits:
        text = (folder / file).read_text()
        if text.count(find) != 1:
            raise ValueError(
                f"{file} has {text.count(find)} times what is to be edited: "
                f"{find!r}"
            )
        (folder / file).write_text(text.replace(find, new))


def copy(repositories: Path, script: PublicScript, to: Path) -> Path:
    """Copy the folder of a script, and link what it reads besides."""
    name = script.repository.rpartition("/")[2]
    folder = Path(name) / script.folder
    ignore = shutil.ignore_patterns(".git", "__pycache__", *script.removed)
    shutil.copytree(repositories / folder, to / folder, ignore=ignore)
    for other in ("made", "stand_ins"):
        (to / other).symlink_to(repositories / other)
    return to / folder


def judged(row: dict[str, Any], plant: Plant, cause: str) -> dict[str, Any]:
    """Return a row with how the mistake has ended, by what was found.

    Args:
        row: What was found, by each tool.
        plant: The mistake.
        cause: A regular expression of what names it.
    """
    found = [line for tool in TOOLS for line in row[tool]]
    if plant.mistake == "none":
        end = "an alarm" if found else "no alarm"
    elif not found:
        end = "missed"
    else:
        named = [t for t in TOOLS if re.search(cause, "\n".join(row[t]))]
        by = " and ".join(named)
        end = f"found by {by}" if named else "shown without its cause"
    return row | {"end": end, "why": plant.why}


def name_of(plant: Plant) -> str:
    """Return by what name a row is known."""
    version = plant.version if plant.mistake == "none" else plant.mistake
    return f"{plant.script}.{version}"


class Planter:
    """Plants mistakes into copies, and runs these.

    Args:
        repositories: The folder of checkouts.
        table: What is planted.
        scripts: Into which scripts.
    """

    def __init__(
        self,
        repositories: Path,
        table: Mistakes,
        scripts: Iterable[PublicScript],
    ) -> None:
        self._repositories = repositories
        self._logs = repositories / "logs"
        self._table = table
        self._scripts = {script.name: script for script in scripts}

    def commits(self) -> dict[str, str]:
        """Return the repository of each script, and its commit."""
        runner = Runner(self._repositories, self._logs)
        known = [self._scripts[name] for name in self._table.script]
        return {s.name: f"{s.repository} {runner.commit(s)}" for s in known}

    def record(self, plant: Plant) -> dict[str, Any]:
        """Plant a mistake, and return what is said of it."""
        ran = {tool: self._run(plant, tool) for tool in TOOLS}
        return {
            "name": name_of(plant),
            "script": plant.script,
            "mistake": self._table.mistake[plant.mistake]["is"],
            **{tool: found for tool, (found, _) in ran.items()},
            "wall_seconds": round(sum(s for _, s in ran.values()), 1),
        }

    def _run(self, plant: Plant, tool: str) -> tuple[list[str], float]:
        """Return what a tool finds, and the seconds that it has run."""
        common = self._table.script[plant.script]
        known = self._scripts[plant.script]
        script = with_more(known, common.get("arguments", []))
        script = replace(script, name=name_of(plant), steps=-1, removed=[])
        with TemporaryDirectory() as name:
            folder = copy(self._repositories, known, Path(name))
            if plant.version != "as it is":
                edit(folder, (Edit(**e) for e in common["comparable"]))
            runner = Runner(Path(name), self._logs)
            if plant.first is not None:
                runner.simulate(with_more(script, plant.first))
            edit(folder, plant.edits)
            script = with_more(script, plant.arguments)
            if tool == "check":
                ended = runner.check(script, common.get("one", ""))
            else:
                ended = runner.simulate(script)
            found = alarms(ended.output.replace(f"{folder}/", ""))
        if ended.status != 0:
            found = found or [failure(ended)]
        return found, ended.wall_seconds


def with_more(script: PublicScript, arguments: list[str]) -> PublicScript:
    """Return a script with more arguments."""
    return replace(script, arguments=[*script.arguments, *arguments])
