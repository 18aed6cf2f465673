"""What the page ``limits`` runs.

``comparisons`` -- predictions beside measurements, and decisions: the record;
``trust`` -- which question each class of work may be asked, and why;
``pictures`` -- predicted over measured, by class of work;
``predictions`` -- training steps on a calibrated machine.

``scripts/recorders/trust`` has the programs that predict.
"""
