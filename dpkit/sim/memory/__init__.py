"""What lies in the memory of a device.

``accounting`` -- live and peak bytes, by storage: begin here;
``garbage`` -- frees what nobody can use, before memory is judged;
``small_integers`` -- the values that a machine without values keeps.
"""
