"""``python -m dpkit check``: several ranks of a script against one.

``checking`` -- begin here: which runs are made, and what is compared;
``recorded_runs`` -- run the script on ranks, or on one, and keep what it does;
``kept`` -- what each keeps of its run: ``digests`` of gradients and
parameters, ``model_facts``, ``data_of_samplers``;
``comparison`` -- what is said of it: ``among_ranks`` and ``with_one`` say what
differs, ``nearness`` what counts as equal, ``causes`` what a difference looks
like;
``played`` -- the batches of all ranks, for one; ``same_parameters``, those of
each step; ``own_statistics``, of batch normalization; ``dropout``, which is
left out; ``same_examples``, whether it has had those of the ranks;
``averaging_steps`` -- optimizers that average gradients inside of a step;
``divided_parameters`` -- those that a script divides by hand, which are left
out;
``local_steps`` -- ranks that average their parameters in rounds, which are not
compared with one;
``written_files`` -- puts back what a script writes in these runs.

``torchrun`` runs the script and has the watchers.
"""

from dpkit.sim.places import runs_beneath

runs_beneath(__path__[0])
