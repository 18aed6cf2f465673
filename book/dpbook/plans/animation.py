"""Plans as moving pictures, which can be stopped."""

import zlib

from dpbook.plans import pictures as still
from dpkit.plans import Message, Plan
from dpkit.sim.timeline import drawing
from dpkit.sim.timeline.drawing import BLUE, GREEN

SECONDS = 1.8  # of a step
REST = 1.5  # at the end


class Animation(drawing.Drawing):
    """A moving picture with a switch that stops it, as HTML around its SVG.

    No script runs in it; in a live figure one may set its time.
    It stands still for readers who have asked their system for less motion.
    """

    def _repr_html_(self) -> str:
        return self.svg

    def _repr_svg_(self) -> None:  # type: ignore[override]
        """Leave it to HTML, which has the switch."""

    def __repr__(self) -> str:
        return f"<animation: {self.title}>"


def animate_plan(plan: Plan) -> Animation:
    """Animate the messages of a plan, step by step, in a loop."""
    grid = still.Grid(plan.world_size, plan.num_chunks)
    y = 76.0
    name = f"dpkit-plan-{zlib.crc32(str(plan).encode()):08x}"
    levels = list(still.levels_of(plan))
    parts = [*still.heads(grid), *still.frames(grid, y)]
    parts += [
        f'<g class="level">{r}</g>' for r in still.fills(grid, levels[0], y)
    ]
    for number, step in enumerate(plan.steps, start=1):
        before = levels[number - 1]
        after = levels[number]
        more = "".join(still.fills(grid, after, y, before))
        parts.append(f'<g class="then then-{number}">{more}</g>')
        parts += [_moving(grid, m, y, number) for m in step]
        label = drawing.quiet_text(14, y + 16, f"step {number}")
        parts.append(f'<g class="now now-{number}">{label}</g>')
    title = f"{still.words_for(plan)}: messages move, and boxes fill up"
    picture = drawing.page(parts, y + 2 * still.CELL + 20, title)
    style = f"<style>{_style(name, len(plan.steps))}</style>"
    box = '<input type="checkbox"> stop or go on'
    # As tall as a finger needs; two of one kind on a page share no name.
    switch = f'<label style="display:inline-block;padding:0.7em">{box}</label>'
    # steps.js goes through the steps by their seconds.
    start = f'<div class="{name}" data-step="{SECONDS}">'
    html = f"{start}{style}{switch}{picture.svg}</div>"
    return Animation(html, title)


def _style(name: str, num_steps: int) -> str:
    """Return the rules by which a picture moves."""
    total = num_steps * SECONDS + REST
    rules = [
        f".{name} svg g{{animation:{total:g}s linear infinite}}",
        f".{name} label:has(:checked)~svg g{{animation-play-state:paused}}",
        f"@media(prefers-reduced-motion:reduce){{"
        f".{name} svg g{{animation-play-state:paused}}"
        f".{name} label:has(:checked)~svg g{{animation-play-state:running}}}}",
    ]
    for number in range(1, num_steps + 1):
        seconds = (SECONDS * (number - 1 + i) for i in (0, 0.8, 1))
        times = (f"{100 * x / total:.2f}%" for x in seconds)
        for kind, rule in _keyframes(*times).items():
            which = f"{name}-{kind}-{number}"
            rules.append(f"@keyframes {which}{{{rule}}}")
            chosen = f".{name} svg .{kind}-{number}"
            rules.append(f"{chosen}{{animation-name:{which}}}")
    return "".join(rules)


def _keyframes(start: str, end: str, last: str) -> dict[str, str]:
    """Return when what arrives, what moves and the words of a step show."""
    hold = "animation-timing-function:step-end"
    off = "opacity:0"
    on = "opacity:1"
    here = "transform:none"
    there = "transform:translateX(var(--far))"
    return {
        "then": f"0%{{{off};{hold}}}{end},100%{{{on}}}",
        "move": f"0%{{{off};{here};{hold}}}{start}{{{on};{here}}}"
        f"{end}{{{on};{there};{hold}}}{last},100%{{{off};{there}}}",
        "now": f"0%{{{off};{hold}}}{start}{{{on};{hold}}}"
        f"{last}{{{off};{hold}}}100%{{{off}}}",
    }


def _moving(grid: still.Grid, message: Message, y: float, number: int) -> str:
    """Draw a message below the boxes that it comes from, to be moved."""
    x = grid.x(message.source, message.first)
    far = grid.x(message.target, message.landing[0]) - x
    width = (message.stop - message.first) * grid.width - 2
    colour = BLUE if message.adds else GREEN
    top = y + still.CELL + 10
    height = still.CELL / 2
    shape = drawing.box(x + 1, top, width, height, fill=colour, more=' rx="3"')
    kind = f'class="move move-{number}" style="--far:{far:.1f}px"'
    return f"<g {kind}>{shape}</g>"
