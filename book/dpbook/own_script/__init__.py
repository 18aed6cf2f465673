"""What the chapter ``own-script`` alone needs.

``train`` -- the script: a small language model, by data parallelism;
``running`` -- its commands, run as in a terminal;
``tables``, ``pictures`` -- what these print, in tables; one script, drawn;
``check`` -- the checks of its exercises.
"""
