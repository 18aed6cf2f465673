"""What the page ``limits`` runs.

``predictions`` -- training steps, measured and simulated.
"""
