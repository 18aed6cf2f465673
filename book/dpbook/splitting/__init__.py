"""What the chapter ``splitting`` runs, draws and checks.

``three_ways`` -- one network, split in three ways;
``grid`` -- two ways together;
``counted`` -- what a step of each way costs, as rows of a table;
``points`` -- the steps that the map is compared with;
``ports`` -- how long a step sends, and how long it multiplies;
``pictures`` -- its figures; ``check`` -- the checks of its exercises.
"""
