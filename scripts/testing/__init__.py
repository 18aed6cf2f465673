"""How tests are run, and told of.

``run_one`` -- the tests of one file;
``run_parts`` -- all there is to run, in the parts of ``parts.toml``;
``report_tests`` -- a file about the last run, to attach to an issue.
"""
