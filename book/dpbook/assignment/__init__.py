"""Assignments: the exercises of the book with the numbers of a sheet.

``grading`` says whether an answer solves an exercise; begin there.
"""
