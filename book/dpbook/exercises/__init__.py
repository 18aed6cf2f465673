"""The exercises of the chapters that can be checked without torch.

A page checks them where they stand, a notebook by ``check``. Begin with
``verdict``; ``page`` answers a page, ``listed`` names all checks, and each
other file has the checks of a chapter or two.
"""
