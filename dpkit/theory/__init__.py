"""What can be said without running: hardware, costs, timelines.

The standard library alone, so that it runs in a browser too.
"""
