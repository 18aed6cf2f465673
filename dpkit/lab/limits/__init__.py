"""What the page ``limits`` runs.

``comparisons`` -- a prediction beside a measurement, all of one form;
``predictions`` -- training steps, measured and simulated;
``library_fit`` -- NCCL's allreduce, measured and by the closed form;
``korthikanti`` -- steps of published transformers, put together of parts:
``transformer`` -- a layer's seconds, ``transformer_layer`` -- the layer,
``sequence_parallel`` -- the layer cut by rows, ``transformer_ends`` -- the
embedding and the loss.
"""
