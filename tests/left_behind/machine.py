"""The simulated machine: what is set, and what goes on."""

import sys
from collections.abc import Iterator
from typing import Any

from tests.left_behind.kinds import Change, Fault, Kind, Seen, from_to

# What is kept of how the machine was set, besides its settings.
KEPT = ("backing_is_chosen", "replaces_gpus", "is_for_a_block")


class Machine(Kind):
    """The settings, what goes on, the current device and its streams."""

    fault = Fault.CHANGED

    def look(self) -> Seen:
        """Return all of it, by its name."""
        simulation = _simulation()
        if simulation is None:
            return {}
        return {
            **simulation.settings,
            **{name: getattr(simulation, name) for name in KEPT},
            "ranks run": simulation.ranks_run,
            "a trace is running": simulation.memory.blocks is not None,
            "races are looked for": simulation.races is not None,
            "memory is not counted": simulation.memory._paused,
            "the current device": simulation.current_device,
            "current streams, by device": {
                device: stream
                for device, stream in enumerate(simulation.clock.current)
                if stream
            },
            "entered streams": len(_entered()),
        }

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Describe what was, and what is."""
        for change in changes:
            yield f"of the simulated machine: {from_to(change)}"

    def put_back(self, changes: list[Change]) -> None:
        """Set all as it was; every device is on its default stream."""
        simulation = _simulation()
        simulation.ranks_run, simulation.races = False, None
        simulation.memory.blocks, simulation.memory._paused = None, False
        before = {change.key: change.before for change in changes}
        settings = simulation.settings
        simulation.change({k: before.get(k, settings[k]) for k in settings})
        for name in KEPT:
            setattr(simulation, name, before.get(name, vars(simulation)[name]))
        simulation.current_device = 0
        _entered().clear()


def _simulation() -> Any:
    configuration = sys.modules.get("dpkit.sim.devices.configuration")
    return configuration and configuration.simulation


def _entered() -> list[Any]:
    streams = sys.modules.get("dpkit.sim.streams.streams")
    return streams._thread.entered if streams else []


MACHINE = Machine()
