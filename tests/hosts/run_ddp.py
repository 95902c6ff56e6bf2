#!/usr/bin/env python3
"""A program that knows nothing of smp: PyTorch's DistributedDataParallel with gloo, on 4 hosts made of
namespaces (scripts/namespace-hosts), by smp-launch --hosts ... -- python ddp.py. Its losses are those of one
process. Returns 77 where there is no Python with torch, or such hosts may not be made.

  run_ddp.py SMP_LAUNCH SOURCE_DIR PYTHON        PYTHON: that of SMP_PEERS_PYTHON, or ''
"""
import os
import pathlib
import subprocess
import sys
import time

from checks import SKIPPED
from namespace_hosts import Hosts

HOSTS = 4
TOLERANCE = 1e-12  # relative, in float64: the mean of 4 means rounds otherwise than that of all


def losses_of(text):
    return [float.fromhex(line.split()[-1]) for line in text.splitlines() if "loss" in line.split()]


def main():
    launch, source, python = sys.argv[1:]
    if not python or subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0:
        print(f"skipped: SMP_PEERS_PYTHON ('{python}') names no Python that has torch")
        return SKIPPED
    program = [python, str(pathlib.Path(__file__).parent / "ddp.py")]
    hosts = Hosts(pathlib.Path(source, "scripts/namespace-hosts"), HOSTS)
    try:
        start = time.monotonic()
        many = subprocess.run([launch, "--hosts", f"h[1-{HOSTS}]", "--ssh-args", f"-F {hosts.folder}/ssh_config",
                               "--", *program], capture_output=True, text=True, timeout=120)
        seconds = time.monotonic() - start
    finally:
        hosts.down()
    alone = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    one = subprocess.run(program, capture_output=True, text=True, timeout=120, env=alone)
    losses, expected = losses_of(many.stdout), losses_of(one.stdout)
    worst = max((abs(a - b) / abs(b) for a, b in zip(losses, expected)), default=0)
    names = " ".join(["hosts", *(f"h{i + 1}" for i in range(HOSTS))])
    holds = many.returncode == 0 and names in many.stdout and len(losses) == len(expected) > 0 and worst <= TOLERANCE
    print(f"{'ok  ' if holds else 'FAIL'}  DistributedDataParallel on {HOSTS} hosts: {len(losses)} losses, those of one "
          f"process but for {worst:.1e} ({seconds:.1f} s)")
    if not holds:
        print(many.stdout, many.stderr, one.stdout, one.stderr, sep="\n")
    return 0 if holds else 1


sys.exit(main())
