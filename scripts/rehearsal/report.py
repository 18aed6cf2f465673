"""The GPU report, whose time ends before its tests and chapters do.

Those are rehearsed one by one. Here the report has to be written, and has to
name what has not been run. Then its short parts are run.
"""

import os
import subprocess
import sys
from pathlib import Path

from gpu_report_parts.plan import PAIRS, ROOT, plan

import dpkit

# The epoch of resident images needs the whole data set.
SHORT = ("machine", *(["resident"] if "DPKIT_DATA" in os.environ else []))

if __name__ == "__main__":
    folder = Path(sys.argv[sys.argv.index("--folder") + 1])
    program = [sys.executable, str(ROOT / "scripts/gpu_report.py")]
    # How far it comes depends on the machine. What the double finds in its
    # parts is named where they are rehearsed one by one, and not here.
    unnamed = os.environ | {"CUDA_DOUBLE_LOG": os.devnull}
    subprocess.run([*program, *sys.argv[1:]], env=unnamed)
    (written,) = folder.glob("gpu-report-*.md")
    print(f"{written.name}: {len(written.read_text('utf-8'))} characters")
    gpus = dpkit.devices(kind="cuda")
    for part in plan(folder, len(gpus)):
        if part.name in (*SHORT, *PAIRS) and part.num_gpus <= len(gpus):
            print(f"{part.name} …", flush=True)
            subprocess.run(part.command, check=True, cwd=ROOT)
