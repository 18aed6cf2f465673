"""Measure this machine, as presets that ``configure`` can load.

It runs microbenchmarks only, and trains no network, so training steps can test
the presets (``dpkit.lab.limits.predictions``).

``calibrate`` -- begin here: all of it together;
``probes`` -- what is timed, by the ``stopwatch``;
``fitting`` -- times that grow with a size, as a line;
``conversion`` -- from lines to presets;
``conditions`` -- the machine, the date, and how busy it was.
"""
