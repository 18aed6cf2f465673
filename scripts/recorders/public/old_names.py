"""Names that old scripts import, and that torch and NumPy no longer have."""

import collections.abc
import math
import sys
import types
from typing import Any

import numpy

_six: Any = types.ModuleType("torch._six")
_six.inf, _six.int_classes, _six.string_classes = math.inf, int, (str, bytes)
_six.container_abcs = collections.abc
sys.modules["torch._six"] = _six
_numpy: Any = numpy
_numpy.float, _numpy.int, _numpy.bool = float, int, bool
