"""Run the listings of one framework: python run.py jax RESULTS.

Writes RESULTS.npz, the parameters of rank 0 after three steps, one behind
another, by way and number of devices; and RESULTS.json, how far those of the
other ranks are apart, what else the page shows, and the versions.
"""

import importlib
import json
import platform
import sys
from importlib.metadata import version

import numpy as np
from common import apart, start

PACKAGES = {
    "jax": ["jax", "jaxlib", "optax", "numpy"],
    "tensorflow": ["tensorflow-cpu", "keras", "numpy"],
    "mxnet": ["mxnet", "numpy"],
}
NUM_DEVICES = 1, 2, 3


def main(framework: str, results: str) -> None:
    ways = importlib.import_module(f"{framework}_step").WAYS
    trained = {
        f"{way} {k}": ways[way](*start(), k)
        for way in ways
        for k in NUM_DEVICES
    }
    np.savez(
        results, **{name: flat(all_[0]) for name, all_ in trained.items()}
    )
    told = {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES[framework]},
        },
        "apart": {name: apart(all_) for name, all_ in trained.items()},
        "facts": importlib.import_module(f"{framework}_facts").facts(*start()),
    }
    with open(f"{results}.json", "w") as file:
        json.dump(told, file)


def flat(params):
    return np.concatenate([np.ravel(np.asarray(p)) for p in params])


if __name__ == "__main__":
    main(*sys.argv[1:])
