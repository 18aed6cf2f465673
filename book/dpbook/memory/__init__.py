"""What the chapter ``memory`` draws and checks.

``pictures`` -- what the memory holds in a step; ``check`` -- its exercises.
"""
