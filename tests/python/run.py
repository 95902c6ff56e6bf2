#!/usr/bin/env python3
"""Runs one of the programs here under smp-launch: run.py SMP_LAUNCH PACKAGES PYTHON RANKS PROGRAM
[HOSTS]; with HOSTS the ranks take themselves to be on so many, though all are on this one. SMP_TEST_DEVICE=cuda
has the tensors of operations.py and training.py on GPUs.

PYTHON is empty where the backend is not built, or cannot import torch; then the test is skipped."""
import os
import pathlib
import re
import subprocess
import sys

launch, packages, python, ranks, program, *hosts = sys.argv[1:]
if not python:
    print("skipped: python/ is not built: configure with SMP_PYTHON, a Python that has torch 2.11")
    sys.exit(77)
imported = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True)
if imported.returncode != 0:
    print(f"skipped: {python} cannot import torch: {imported.stderr.strip().splitlines()[-1]}")
    sys.exit(77)
# That of python-late is host memory.
late = pathlib.Path(packages).name == "python-late"
device = "cpu" if late else os.environ.get("SMP_TEST_DEVICE", "cpu")
environment = dict(os.environ, PYTHONPATH=packages, OMP_NUM_THREADS="1", TEST_HOSTS=hosts[0] if hosts else "1",
                   SMP_TEST_DEVICE=device)
command = [launch, "-n", ranks, "--", python, pathlib.Path(__file__).with_name(program)]
on_gpu = device == "cuda" and program in ("operations.py", "training.py")
if not late and not on_gpu:
    sys.exit(subprocess.run(command, env=environment).returncode)
# Rank 0's words, which are shown, say what copies its device's tensors.
done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
sys.stderr.write(done.stderr)
said = rf"smp: rank 0 of process group \d+: tensors on {'cuda:0' if on_gpu else 'cpu'}; (no )?GDRCopy"
if done.returncode == 0 and not re.search(said, done.stderr):
    sys.exit("rank 0 has not said whether GDRCopy is used")
sys.exit(done.returncode)
