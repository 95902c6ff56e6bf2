#!/usr/bin/env python3
"""Launches of 64 ranks that do nothing, one after the other: none hangs, all end with 0, and nothing is left: no
process, no shared memory, no file in the temporary folder.

  run_launches.py SMP_LAUNCH [--launches N] [--ranks N]
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("launch")
parser.add_argument("--launches", type=int, default=20)
parser.add_argument("--ranks", type=int, default=64)
options = parser.parse_args()


def ours():
    """Processes that carry the mark of this test in their environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark in file.read():
                    found.append(int(entry))
        except OSError:
            continue
    return found


with tempfile.TemporaryDirectory() as folder:
    mark = f"SMP_TEST_LAUNCHES={os.getpid()}".encode()
    environment = {**os.environ, "TMPDIR": folder, "SMP_TEST_LAUNCHES": str(os.getpid())}
    shared_before = set(os.listdir("/dev/shm"))
    times = []
    for number in range(options.launches):
        begin = time.perf_counter()
        done = subprocess.run([options.launch, "-n", str(options.ranks), "--", "/bin/true"], env=environment,
                              capture_output=True, text=True, timeout=200)
        times.append(1e3 * (time.perf_counter() - begin))
        assert done.returncode == 0, f"launch {number}: exit code {done.returncode}: {done.stderr}"
        assert done.stdout + done.stderr == "", f"launch {number} said: {done.stdout}{done.stderr}"
    assert ours() == [], f"processes are left: {ours()}"
    assert os.listdir(folder) == [], f"files are left: {os.listdir(folder)}"
    shared = {name for name in set(os.listdir("/dev/shm")) - shared_before if "smp-launch" in name}
    assert not shared, f"shared memory is left: {shared}"
    print(f"{options.launches} launches of {options.ranks} ranks: all ended with 0, nothing is left; "
          f"median {statistics.median(times):.0f} ms, longest {max(times):.0f} ms")
