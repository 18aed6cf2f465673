"""What the chapter ``overlap`` runs, draws and checks.

``runs`` -- steps that send gradients at different times;
``engines``, ``programs`` -- both engines, simulated and in processes;
``pictures`` -- gradients on their way, and buckets on a link;
``check`` -- the checks of its exercises.
"""
