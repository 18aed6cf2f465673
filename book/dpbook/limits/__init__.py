"""What the page ``limits`` runs.

``comparisons`` -- predictions and measurements, and decisions: the record;
``trust`` -- which question each class of work may be asked, and why;
``tables`` -- speeds and speed-ups, before and now, what is not modelled;
``pictures`` -- predicted over measured, by class of work;
``on_cpu`` -- the training steps of a calibrated machine, as comparisons;
``on_gpu`` -- steps timed on a GPU, and steps of scripts that others timed;
``gpu_steps``, ``gpu_tables`` -- steps of whole models on a GPU, in tables;
``latency`` -- the time of one image, which is that of its launches;
``profiling`` -- the timeline of a real run, by PyTorch's profiler;
``differences`` -- what a simulated device does otherwise than a GPU;
``on_ranks`` -- what PyTorch's engines cannot do on simulated devices.

``scripts/recorders/trust`` has the programs that predict.
"""
