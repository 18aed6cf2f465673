"""What a teacher uses.

``make_assignment`` -- an assignment of the exercises of a chapter;
``grade_assignment`` -- grades what students have handed in;
``assignment`` -- what these two are made of.
"""
