"""Assignments for a course, made of the exercises of a chapter.

``chapter`` reads the exercises of a notebook. ``sheet`` writes the student's
and the instructor's notebook, in which ``seeded`` puts a sheet's numbers and
``known`` the known wrong answers. ``otter_tests`` writes the files of
otter-grader. ``submission`` runs one notebook in a fresh process, and
``marks`` adds up what it earns. Begin with
``scripts/teaching/make_assignment.py``.
"""
