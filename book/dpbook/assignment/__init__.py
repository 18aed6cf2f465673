"""Assignments: the exercises of the book with the numbers of a sheet.

``grading`` says whether an answer solves an exercise; begin there. ``sheets``
lists what a sheet changes. ``interface`` tells what it is to ask for other
numbers, which ``buckets``, ``shards``, ``timelines`` and ``networks`` draw;
``drawn`` draws further cases for the checks of programs.
"""
