"""The exercises of the chapters that can be checked without torch.

A page checks them where they stand, a notebook by ``check``.

``verdict`` -- what a check says: begin here;
``page`` -- answers a page; ``errors`` -- what it says of an error there;
``undone`` -- takes back what a reader's code has set in modules;
``listed`` -- names all checks.

The others have the checks of a chapter or two: ``batch_norm``, ``cluster``,
``collectives``, ``elsewhere``, ``experts``, ``large_batches``, ``memory``,
``mesh``, ``overlap``, ``pipelines``, ``precision``, ``scaling``,
``sequences``, ``sharding`` and ``splitting``.
"""
