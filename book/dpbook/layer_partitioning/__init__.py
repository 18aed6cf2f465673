"""What the chapter ``layer-partitioning`` runs, draws and checks.

``alexnet`` -- two towers that talk in some of the layers;
``engine`` -- PyTorch's own split layers;
``pictures`` -- its figures; ``check`` -- the checks of its exercises.
"""
