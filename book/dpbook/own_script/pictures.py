"""One script on four GPUs, and on simulated ones."""

from dpbook.common.matrices import Panels
from dpbook.common.shares import Cell, Column, Device, Sent, draw_moment, named
from dpkit.sim.timeline.drawing import Drawing

COLUMNS = [
    Column("examples", x=92, width=58),
    Column("model on", x=160, width=70),
]


def draw_both_runs() -> Panels:
    """Draw four processes of the chapter's script, on GPUs and simulated."""
    return Panels(
        [
            _run(
                "torchrun",
                "on a machine with four GPUs",
                simulated=False,
                description="Each of four processes has 8 examples, and a "
                "model on its GPU, cuda:0 to cuda:3. The gradients are "
                "averaged.",
            ),
            _run(
                "python -m dpkit torchrun",
                "on a computer without a GPU",
                simulated=True,
                description="The same four processes. The GPUs cuda:0 to "
                "cuda:3 are simulated.",
            ),
        ],
        in_a_row=2,
    )


def _run(title: str, when: str, simulated: bool, description: str) -> Drawing:
    devices = []
    for process in range(4):
        gpu = f"cuda:{process}"
        model = [[Cell(None, gpu)]] if simulated else named([gpu], process)
        blocks = named(["8"], process), model
        devices.append(Device(f"process {process}", process, blocks))
    sent = [
        Sent(0, x=94, ends="both", label="gradients, averaged"),
        Sent(1, x=94, ends="both"),
        Sent(2, x=94, ends="both"),
    ]
    return draw_moment(
        title,
        when,
        columns=COLUMNS,
        devices=devices,
        sent=sent,
        description=description,
    )
