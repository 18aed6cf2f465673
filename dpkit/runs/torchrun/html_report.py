"""The report of a run as one page of HTML, which needs no network.

Besides the sections of the report it has the timeline of the last step, and
what the memory of each device was for. If the run has failed, the page begins
with the error.
"""

from dataclasses import replace
from html import escape
from pathlib import Path

from dpkit.runs.torchrun.failures import RunFailure
from dpkit.runs.torchrun.launching import Run
from dpkit.runs.torchrun.report import FOUND, failed, report
from dpkit.runs.torchrun.section import Section
from dpkit.sim.clock import SECOND, Span
from dpkit.sim.timeline import Timeline

MOST_RANKS = 8  # whose timelines and memory are drawn
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; overflow-wrap: normal; }
th, td { padding: 0.2rem 0.8rem; text-align: right;
  border-bottom: 1px solid; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; overflow-x: auto; }
small { font-weight: normal; }
pre { overflow-x: auto; font-size: 0.85rem; }
.table, .box { overflow-x: auto; }
.box { border-left: 0.4rem solid #777; padding: 0.2rem 1rem; margin: 1rem 0; }
.failed { border-color: #c62828; background: #c6282820; }
.found { border-color: #b26a00; background: #ffb30026; }
.nothing { border-color: #2e7d32; background: #2e7d321a; }
"""


def write_page(done: Run, path: Path, command: str) -> None:
    """Write the report of a run.

    Args:
        done: What the run has left.
        path: The file to write.
        command: What was run, as on the command line.
    """
    title = f"{command}: {done.timeline.label}"
    parts = [f"<h1>{escape(title)}</h1>"]
    failure = failed(done)
    sections = report(done)
    if failure is not None:
        parts.append(_banner(failure))
        parts += map(_section, sections[:1])
        parts.append(_where_it_failed(failure))
        sections = sections[1:]
    parts += map(_section, sections)
    parts += _figures(done)
    path.write_text(
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>{''.join(parts)}</body></html>\n",
        encoding="utf-8",
    )


def _banner(failure: RunFailure) -> str:
    """Return what has ended the run, for the top of the page."""
    lines = [f"<strong>Failed:</strong> {escape(failure.message)}"]
    lines += map(escape, failure.notes)
    return f'<div class="box failed"><p>{"<br>".join(lines)}</p></div>'


def _where_it_failed(failure: RunFailure) -> str:
    """Return the lines that led to an error, and that of each rank."""
    parts = ["<h2>Where it failed</h2>"]
    if failure.tracebacks:
        text = "\n".join(failure.tracebacks)
        parts.append(f"<pre>{escape(text)}</pre>")
    parts += [f"<p>{escape(line)}</p>" for line in failure.lines]
    return "\n".join(parts)


def _section(section: Section) -> str:
    """Return a section of the report."""
    basis = f" <small>({section.rests_on})</small>" if section.rests_on else ""
    head = f"<h2>{escape(section.title)}{basis}</h2>"
    mark = f"<strong>{section.mark}</strong> " if section.mark else ""
    lines = [f"<p>{mark}{escape(line)}</p>" for line in section.lines]
    if section.title == FOUND:
        kind = "found" if section.mark else "nothing"
        if not section.mark:  # one sentence, in lines for a terminal
            nothing, *sentence = map(escape, section.lines)
            lines = [f"<p>{nothing}</p>", "<p>", *sentence, "</p>"]
        lines = [f'<div class="box {kind}">', *lines, "</div>"]
    parts = [head, *lines]
    if section.table is not None:
        parts.append(f'<div class="table">{section.table._repr_html_()}</div>')
    return "\n".join(parts)


def _figures(done: Run) -> list[str]:
    """Return the timeline of the last step, and the memory of each device."""
    ranks = [r for r, one in enumerate(done.ranks) if one is not None]
    shown = ranks[:MOST_RANKS]
    parts = []
    spans = _last_step(done, shown)
    if spans:
        timeline = Timeline(spans=spans, label=done.timeline.label)
        parts.append("<h2>The last step</h2>")
        parts.append(f"<figure>{timeline.draw().svg}</figure>")
    if shown:
        parts.append("<h2>Memory, in the order of issue</h2>")
    for rank in shown:
        one = done.ranks[rank]
        assert one is not None
        held = Timeline(blocks=one.facts.blocks, label=done.timeline.label)
        drawing = held.draw_memory(f"sim:{rank}")
        parts.append(f"<figure>{drawing.svg}</figure>")
    if len(shown) < len(ranks):
        parts.append(f"<p>The first {len(shown)} ranks are drawn.</p>")
    return parts


def _last_step(done: Run, ranks: list[int]) -> list[Span]:
    """Return what ranks do in the last step, from its beginning on."""
    first = done.ranks[ranks[0]] if ranks else None
    was_ended = done.failure is not None and not done.is_one_process
    if first is None or len(first.facts.steps) < 2 or was_ended:
        return []
    start, end = (step.mark / SECOND for step in first.facts.steps[-2:])
    places = [f"{kind}:{r}" for r in ranks for kind in ("sim", "host")]
    return [
        replace(
            span,
            start=max(span.start, start) - start,
            end=min(span.end, end) - start,
        )
        for span in done.timeline.spans
        if span.device in places and span.end > start and span.start < end
    ]
