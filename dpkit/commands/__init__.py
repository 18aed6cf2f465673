"""The commands that tell of this machine, one in a file: ``devices``, ….

``parser`` is what all commands of ``python -m dpkit`` share, those that run a
script, too (``dpkit/runs/commands``).
"""
