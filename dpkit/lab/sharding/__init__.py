"""What the chapter ``sharding`` runs, draws and checks.

``seven_billion`` -- a language model by PyTorch's ``fully_shard``.
"""
