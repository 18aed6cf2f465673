"""What the chapter ``data-parallelism`` draws and checks.

``pictures`` -- its figures; ``check`` -- the checks of its exercises.
"""
