"""What the book runs, draws and checks; the library is ``dpkit``.

``<chapter>/`` -- what was made for one chapter: what it runs (``runs``), its
    figures (``pictures``), the programs that it launches (``programs``), and
    the checks of its exercises (``check``);
``common/`` -- what three chapters or more share;
``museum/`` -- bugs, each with the check that catches it;
``job/`` -- the training job: ``python -m dpbook train``;
``assignment/`` -- exercises with other numbers, for a course;
``__main__`` -- the command line, which starts the job.

Five rooms need the standard library alone, so that they run in a page too:
``formulas/`` -- what a step takes and keeps, without running anything;
``planner/`` -- layouts of a large run, and what each of them would take;
``plans/`` -- plans of messages as pictures;
``explore/`` -- the figures with controls;
``exercises/`` -- checks of the chapters' exercises.
"""

# In reports of races, the lines of this package are lines of the program.
IS_PROGRAM = True
