"""Checkpoints: a run that was killed goes on from where it was."""

from dpkit.job.checkpoints.contents import pack, unpack
from dpkit.job.checkpoints.fitting import check_fit, forms
from dpkit.job.checkpoints.folder import Checkpoints, Found

__all__ = ["Checkpoints", "Found", "check_fit", "forms", "pack", "unpack"]
