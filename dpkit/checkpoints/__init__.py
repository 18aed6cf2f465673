"""Checkpoints: a run that was killed goes on from where it was."""

from dpkit.checkpoints.contents import pack, unpack
from dpkit.checkpoints.fitting import check_fit, forms
from dpkit.checkpoints.folder import Checkpoints, Found

__all__ = ["Checkpoints", "Found", "check_fit", "forms", "pack", "unpack"]
