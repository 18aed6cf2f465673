"""The commands that run a script: ``run``, ``torchrun`` and ``check``.

What they share is in ``scripts``: the machine, the script, the report.
"""
