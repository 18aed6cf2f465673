"""Ranks as threads of this process, for PyTorch's own engines.

``launching`` -- begin here: ``dpkit.sim.launch``;
``turns`` -- one rank runs at a time, and who is next;
``world`` -- what ranks share, and what each has of its own;
``group`` -- a process group: what PyTorch calls, as meetings of ranks;
``meetings`` -- one operation: who has come, and when it runs;
``sending`` -- what it sends, by dpkit's own collectives;
``works`` -- what a rank holds of an operation, and waits for.
"""

from dpkit.ranks.launching import launch

__all__ = ["launch"]
