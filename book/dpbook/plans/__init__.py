"""Plans of messages, such as a ring's, as pictures.

``pictures`` -- a plan step by step: who sends which chunk to whom;
``animation`` -- the same as an animation, which needs no JavaScript.
"""
