"""What the page ``limits`` runs.

``comparisons`` -- a prediction beside a measurement, all of one form;
``convolutional`` -- networks of convolutions, simulated as they were measured;
``convolution_rates`` -- rates fitted to them, and what is off;
``library_fit`` -- NCCL's allreduce, measured and by the closed form;
``links`` -- cards on PCI Express, copying and reducing;
``predictions`` -- training steps, measured and simulated.
"""
