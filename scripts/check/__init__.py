"""What looks at the pages and the text.

``run.sh`` begins ``make check``: it installs what is missing and runs
``main.mjs``, which lists the checks. These scripts read the text:

``words`` -- finds what makes pages and code hard to read;
``words.toml`` -- the words that it refuses;
``prose`` -- where the sentences of the project stand;
``reading_time`` -- the minutes that a chapter takes, by its words;
``live_answers`` -- what live figures show, for ``live.mjs``.
"""
