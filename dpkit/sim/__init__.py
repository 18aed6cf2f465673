"""Simulated devices: ``sim:0``, ``sim:1``, … are devices of torch."""

from dpkit.sim.registration import register

__all__ = ["register"]
