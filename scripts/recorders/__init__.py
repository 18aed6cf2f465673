"""Programs whose results the chapters plot, and what they alone need.

``python scripts/record.py NAME`` runs one of them; ``make reproduce`` all.
"""
