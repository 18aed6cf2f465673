"""The programs that these tests start are no tests.

They need packages that the tests of the project do without.
"""

collect_ignore_glob = ["train_*.py"]
