#!/usr/bin/env python3
"""Runs one of the programs here under smp-launch: run.py SMP_LAUNCH PACKAGES PYTHON RANKS PROGRAM
[HOSTS]; with HOSTS the ranks take themselves to be on so many, though all are on this one.

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
environment = dict(os.environ, PYTHONPATH=packages, OMP_NUM_THREADS="1", TEST_HOSTS=hosts[0] if hosts else "1")
command = [launch, "-n", ranks, "--", python, pathlib.Path(__file__).with_name(program)]
if pathlib.Path(packages).name != "python-late":
    sys.exit(subprocess.run(command, env=environment).returncode)
# Rank 0's words, which are shown, say what copies its device's tensors.
done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
sys.stderr.write(done.stderr)
if done.returncode == 0 and not re.search(r"smp: rank 0 of process group \d+: tensors on cpu; (no )?GDRCopy", done.stderr):
    sys.exit("rank 0 has not said whether GDRCopy is used")
sys.exit(done.returncode)
