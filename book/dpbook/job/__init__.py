"""The training job behind ``python -m dpbook train``.

``command`` -- its arguments, and what it prints;
``run`` -- one run, seen from one of its ranks: begin here;
``ranks`` -- the ranks of a job that torchrun starts;
``device_assignment`` -- which GPU each rank has for itself;
``roll_call`` -- which ranks are lost when something fails;
``resume`` -- takes a run up from a checkpoint, and saves more;
``checkpoints`` -- the state of a run on a disk;
``state_forms`` -- checks that a saved state fits the run;
``lock`` -- lets only one job write to a folder;
``regular_files`` -- opens files, and no pipes or devices;
``pictures`` -- a job that loses a process, drawn.
"""
