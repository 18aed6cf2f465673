"""What the chapters need besides the library.

``common/`` -- what three chapters or more share;
``<chapter>/`` -- what was made for one chapter: what it runs (``runs``), its
    figures (``pictures``), the programs that it launches (``programs``), and
    the checks of its exercises (``check``);
``museum/`` -- bugs, each with the check that catches it.
"""
