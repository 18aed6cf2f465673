"""What is predicted and what was measured, for each class of work.

``recorders.comparisons`` writes the record. Here are, by class of work:
``notebook`` -- the notebook and the textbook that the chapters begin with;
``convolutional`` -- networks of convolutions, simulated as they were measured;
``convolution_rates`` -- rates fitted to them, and what is off;
``grouped`` -- networks whose convolutions are in groups;
``pipelines`` -- two published pipelines, from their records;
``korthikanti`` -- steps of published transformers, put together of parts:
``transformer`` -- a layer's seconds, ``transformer_layer`` -- the layer,
``sequence_parallel`` -- the layer cut by rows, ``transformer_ends`` -- the
embedding and the loss;
``small_transformers`` -- steps and a layer of BERT-large on one GPU:
``bert`` -- the network, and its seconds;
``collectives`` -- NCCL's allreduces in nodes and between them, as rows;
``library_fit`` -- NCCL's allreduce, measured and by the closed form;
``attention`` -- rates of fused attention, fitted to one card;
``h200_kernels`` -- rates of kernels that were timed on an H200;
``links`` -- cards on PCI Express, copying and reducing;
``plans`` -- the planner's steps, ``cuts`` -- and its choice among cuts,
``expert_plans`` -- and among ways to divide experts;
``decisions`` -- which of several was the best, predicted and measured;
``decided`` -- which decisions hang on the rows of each class.
"""
