"""What the chapter ``experts`` runs and draws.

``programs`` -- what each rank runs: a small layer of experts, with values;
``runs`` -- a large one, without values, on the clock;
``training`` -- a small network with experts, trained in three ways;
``results`` -- where tokens go, and what the trainings recorded;
``pictures`` -- tokens on their way to their experts and back.
"""
