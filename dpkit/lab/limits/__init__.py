"""What the page ``limits`` runs.

``predictions`` -- training steps, measured and simulated;
``library_fit`` -- NCCL's allreduce, measured and by the closed form.
"""
