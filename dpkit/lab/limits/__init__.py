"""What the page ``limits`` runs.

``comparisons`` -- a prediction beside a measurement, all of one form;
``convolutional`` -- networks of convolutions, simulated as they were measured;
``convolution_rates`` -- rates fitted to them, and what is off;
``korthikanti`` -- steps of published transformers, put together of parts:
``transformer`` -- a layer's seconds, ``transformer_layer`` -- the layer,
``sequence_parallel`` -- the layer cut by rows, ``transformer_ends`` -- the
embedding and the loss;
``library_fit`` -- NCCL's allreduce, measured and by the closed form;
``links`` -- cards on PCI Express, copying and reducing;
``predictions`` -- training steps, measured and simulated.
"""
