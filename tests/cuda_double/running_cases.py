"""Run the functions of a file, one after the other, in one Python.

Usage: python running_cases.py FILE. The last line that it prints is a JSON
object: for each function whose name begins with ``case_`` the value or the
error, and what the double's check has found meanwhile.
"""

import gc
import json
import runpy
import sys
from collections.abc import Callable
from typing import Any

import torch
from cuda_double.findings import findings


def outcome_of(case: Callable[[], Any]) -> dict[str, Any]:
    before = len(findings())
    told: dict[str, Any] = {}
    try:
        told["value"] = case()
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
    gc.collect()
    told["findings"] = findings(before)
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)  # the next case begins on idle devices
    return told


def main() -> None:
    functions = runpy.run_path(sys.argv[1])
    print(
        json.dumps(
            {
                name.removeprefix("case_"): outcome_of(function)
                for name, function in functions.items()
                if name.startswith("case_")
            }
        )
    )


if __name__ == "__main__":
    main()
