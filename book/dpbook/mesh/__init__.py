"""What the chapter ``mesh`` runs: one model, on any layout of a mesh.

``model`` -- a Llama on one device: begin here;
``layouts`` -- how a mesh of ranks is cut, and who has which rows;
``engines`` -- PyTorch's engines, applied to the model by a layout;
``training`` -- a step on a layout, gradients clipped, and checkpoints;
``programs`` -- what each rank runs, and what one device runs;
``traffic`` -- the bytes that a layout sends, by formula;
``runs`` -- layouts on simulated nodes: seconds, bytes and memory;
``forecasts`` -- what the planner says of the same layouts;
``groups`` -- which ranks a rank sends to, by dimension of the mesh;
``results`` -- the record of all layouts, in tables and a picture;
``pictures`` -- what ranks have, the groups, what a device computes and sends.
"""
