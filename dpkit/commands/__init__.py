"""The commands of ``python -m dpkit``, one in a file; ``parser`` is common."""
