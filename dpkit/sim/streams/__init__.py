"""Streams, events, and what is sent between devices.

``streams`` -- ``torch.sim.Stream`` and ``torch.sim.Event``: begin here;
``generic`` -- ``torch.Stream`` and ``torch.Event`` on these devices;
``sending`` -- how ``torch.distributed`` sends.
"""
