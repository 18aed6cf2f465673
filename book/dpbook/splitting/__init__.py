"""What the chapter ``splitting`` runs, draws and checks.

``three_ways`` -- one network, split in three ways;
``grid`` -- two ways together.
"""
