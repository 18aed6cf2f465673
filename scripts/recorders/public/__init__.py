"""Scripts that others wrote for torchrun, run on simulated GPUs.

``recorders.public_scripts`` writes the record. Here are:
``table`` -- which scripts (``scripts.toml``), and their command lines;
``run`` -- run one, and read its report;
``watched`` -- runs a script, and writes its parameters' sums after each step;
``gloo`` -- runs it in real processes, where ``cuda`` means the CPU;
``compare`` -- compares the sums of the two;
``said`` -- what torchrun and check say, among what the script prints;
``planting`` -- plants mistakes (``mistakes.toml``) into copies, for
    ``recorders.planted_mistakes``;
``made_up`` -- data that the scripts read, where the real is a download;
``made_models`` -- the same for what scripts read from a hub;
``old_names`` -- names that torch and NumPy no longer have;
``no_flash``, ``vocabulary`` -- packages in place of those that scripts import.

``recorders.forecasts`` runs those whose steps others have timed. For it are:
``forecasts`` -- what was published (``forecasts.toml``);
``checkout`` -- lays out the files of the commit that was timed;
``made_for_forecasts`` -- data for batches of the published size.

``recorders.llama_memory`` runs ``llama_fsdp``: Llama 3 8B with FSDP2.
"""
