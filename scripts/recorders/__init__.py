"""Programs whose results the chapters plot, and what they alone need.

``provenance`` -- writes a record, and what it was made by: begin here.

``python scripts/record.py NAME`` runs one of the programs below. A record of
book/_data has the name of its program, unless another is given here.

``make reproduce`` runs these:
``headline`` -- LeNet on all of Fashion-MNIST, on one device and on two;
``published`` -- pipelines that others have timed: ``amoebanet_p40.json`` and
    ``resnet50_pipeline.json`` (``published.json`` is of a textbook);
``recipe`` -- ResNet-18 by a published recipe: ``resnet18_recipe.json``;
``large_batches`` -- the experiment on large batches;
``resident`` -- epochs whose images lie on a GPU: ``resident_epoch.json``;
``framework`` -- modules and their bare operations: ``framework_code.json``;
``comparisons`` -- all that was measured, and its predictions;
``seven_billion`` -- a model of 6.7 billion parameters on simulated H100s;
``split_steps`` -- steps that are split in three ways, over a grid of sizes;
``mesh`` -- one model on layouts of eight devices;
``gpu_forecasts`` -- the steps of ``gpu_steps``, simulated.

These run by their names alone:
``cells_on_gpus`` -- how many cells of each chapter work on GPUs of the double;
``experts`` -- a small network of experts, and how busy they were;
``llama_memory`` -- what a step of Llama 3 8B needs on 64 GPUs;
``gpu_steps``, ``gpu_operators`` -- what a GPU takes. ``make gpu-report`` runs
    them too, and leaves these records as they are;
``public_scripts`` -- scripts of others on simulated GPUs;
``planted_mistakes`` -- the same scripts, with mistakes;
``forecasts`` -- scripts that others timed: ``forecasts_of_scripts.json``;
``counts`` -- the networks of the book, counted: not a record, but
    ``book/dpbook/formulas/data/networks.json``.

What these are made of:
``amoebanet``, ``resnet_pipeline`` -- what ``published`` runs;
``trust`` -- what ``comparisons`` predicts, by class of work;
``gpu`` -- what ``gpu_operators`` times;
``public`` -- how scripts of others are run.
"""
