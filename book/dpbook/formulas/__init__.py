"""What a step takes and keeps, as formulas, without running anything.

``splits`` -- the three ways to split a step, compared: begin here;
``parallel_step`` -- what a step of data parallelism takes;
``overlap`` -- when the buckets of a step have been reduced;
``gradient_sums`` -- what the allreduce of all gradients takes;
``ring_attention`` -- what ranks of a ring compute in which step, and when;
``sharding`` -- the bytes that each shard keeps and sends;
``dense``, ``transformer`` -- parameters and arithmetic of such networks;
``networks`` -- the counts of the networks in the chapters.
"""
