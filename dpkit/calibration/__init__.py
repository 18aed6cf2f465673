"""Measure this machine, as presets that ``configure`` can load.

The microbenchmarks train no network, so training steps can test the presets.

``calibrate`` -- begin here: all of it together;
``probes`` -- what is timed, by the ``stopwatch``;
``fitting`` -- times that grow with a size, as a line;
``conversion`` -- from lines to presets;
``predictions`` -- training steps, simulated by a preset and measured;
``conditions`` -- the machine, the date, and how busy it was.
"""
