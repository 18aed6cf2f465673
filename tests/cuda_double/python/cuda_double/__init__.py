"""The part of the double of CUDA that is written in Python.

``loading`` loads the two libraries around the import of torch; ``findings``
reads what the check has found; ``pytest_plugin`` makes tests fail by it.
"""
