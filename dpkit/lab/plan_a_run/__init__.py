"""What the page ``plan-a-run`` shows: tables of layouts, and of misses."""
