"""What the page ``limits`` runs.

``comparisons`` -- a prediction beside a measurement, all of one form;
``library_fit`` -- NCCL's allreduce, measured and by the closed form;
``links`` -- cards on PCI Express, copying and reducing;
``predictions`` -- training steps, measured and simulated.
"""
