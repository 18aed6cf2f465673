"""What the chapter ``splitting`` runs, draws and checks.

``three_ways`` -- one network, split in three ways; ``ways`` -- a drawing of
such a network;
``grid`` -- two ways together.
"""
