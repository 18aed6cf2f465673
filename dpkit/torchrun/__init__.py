"""``python -m dpkit torchrun`` and ``run``: a script, on simulated GPUs.

``launching`` -- begin here: the ranks of a script of torchrun;
``one_process`` -- a script that python starts; ``spawning``, where it starts
processes itself; ``script_watch``, whether it waits for nobody;
``script`` -- run a script in the process of a rank, as torchrun would;
``facts`` -- what is counted in a rank while the script runs;
``watchers`` -- mistakes that a rank can see; ``local_rank``, one of them;
``races``, what nothing orders;
``report`` -- what happened, in lines of text; ``host_share``, how much of it
is waiting for launches; ``report_of_one``, what it says of one process;
``page``, as a page of HTML; what ranks compare: ``replicas``, ``examples``
that they share, lists that they have ``shuffled``, ``new_groups``;
``parameter_names``, what all of these call a parameter;
``failures`` -- how a rank has failed, told once; ``early_end``, by os._exit;
``checking`` -- ``python -m dpkit check``: several ranks against one.
``kept`` is what each keeps of its run: ``digests`` of gradients and
parameters, ``model_facts``, ``data_of_samplers``; ``comparison``,
``among_ranks`` and ``with_one`` say what differs, ``nearness`` what counts as
equal, ``causes`` what a difference looks like. So that one rank computes what
the ranks do: ``played``, the batches of all; ``same_parameters``, those of
each step; ``own_statistics``, of batch normalization; ``dropout``, which is
left out; ``same_examples``, whether it has had those of the ranks. Ranks that
average their parameters in ``rounds`` are not compared with it. What a script
writes in these runs is put back: ``written_files``.

``dpkit.forked`` has the ranks, and ``dpkit.sim.cuda_names`` makes ``cuda``
mean the simulated devices, and shows their time.
"""
