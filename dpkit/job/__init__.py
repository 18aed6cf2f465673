"""The training job behind ``python -m dpkit train``.

``run`` -- one run, seen from one of its ranks: begin here;
``ranks`` -- the ranks of a job that torchrun starts;
``roll_call`` -- which ranks are lost when something fails;
``resume`` -- a run resumed from a checkpoint, saving more;
``checkpoints`` -- the state of a run on a disk;
``state_forms`` -- whether a state that was saved fits;
``lock`` -- one job alone writes to a folder.
"""
