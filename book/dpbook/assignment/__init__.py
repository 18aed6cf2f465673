"""Assignments: the exercises of the book with the numbers of a sheet.

``grading`` -- whether an answer solves an exercise: begin here;
``sheets`` -- the exercises of a sheet, and how each is checked;
``asked`` -- what is asked where an answer is a decision;
``buckets``, ``shards``, ``timelines``, ``networks`` -- draw its numbers;
``drawn`` -- draws further cases for the checks of programs.
"""
