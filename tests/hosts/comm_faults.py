#!/usr/bin/env python3
"""Breaks jobs of lib/comm on hosts made of namespaces (scripts/namespace-hosts): a killed rank, a host without power, a
cut network, a stopped host, two hosts that do not reach each other, each in another call. Every survivor must get an
error within 5 s that names a rank that is to blame, its host and the call. Prints when the last survivor had. Returns 77
where such hosts may not be made.

  comm_faults.py CALLS_UNTIL_AN_ERROR SOURCE_DIR [--hosts 2,3,4,8] [--per-host 2]
"""
import argparse
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from namespace_hosts import Hosts

FAULTS = ["a killed rank", "a host without power", "a cut network", "a stopped host",
          "two hosts that do not reach each other"]
# By turns. Two hosts that do not reach each other are only noticed where they have something for each other, which in a
# broadcast they have not.
CALLS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send"]
LIMIT_S = 5
PORT = 29577

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("source", type=pathlib.Path)
parser.add_argument("--hosts", default="2,3,4,8")
parser.add_argument("--per-host", default="2")
options = parser.parse_args()
failed = 0
took_s = {fault: [] for fault in FAULTS}  # until the last survivor of each trial had ended


class Rank:
    def __init__(self, hosts, rank, size, per_host, call):
        self.rank, self.host = rank, rank // per_host
        address = (pathlib.Path(hosts.folder) / "hosts").read_text().splitlines()[1].split()[0]
        variables = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank % per_host, "LOCAL_WORLD_SIZE": per_host,
                     "GROUP_WORLD_SIZE": size // per_host, "MASTER_ADDR": address, "MASTER_PORT": PORT,
                     "SMP_JOB_ID": "faults", "SMP_JOB_KEY": "a key for this test", "SMP_COMM_TIMEOUT_S": 60}
        self.process = subprocess.Popen(
            ["nsenter", "-t", hosts.child(f"h{self.host + 1}"), "-n", "-u", "-p", "-m", os.path.abspath(options.program),
             call],
            env={**os.environ, **{key: str(value) for key, value in variables.items()}},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self.process.stdout.readline()
        if said != "running\n":
            raise RuntimeError(f"rank {rank}: {said}{self.process.stdout.read()}")


def pid_of(rank):  # below nsenter, which forked into the process namespace
    return int(pathlib.Path(f"/proc/{rank.process.pid}/task/{rank.process.pid}/children").read_text().split()[0])


def inject(fault, hosts, ranks, count):
    """Breaks something; the ranks that are lost with it, and those that may be blamed."""
    last = f"h{count}"
    there = [rank for rank in ranks if rank.host == count - 1]
    if fault == "a killed rank":
        os.kill(pid_of(ranks[-1]), signal.SIGKILL)
        return ranks[-1:], ranks[-1:]
    if fault == "a host without power":
        hosts.tell("off", last)
    elif fault == "a cut network":
        hosts.tell("cut", last)
        return [], ranks if count == 2 else there + ranks[:1]
    elif fault == "a stopped host":
        for rank in there:
            os.kill(pid_of(rank), signal.SIGSTOP)
    else:
        subprocess.run([hosts.script, "part", hosts.folder, last, f"h{count - 1}"], check=True)
        return [], [rank for rank in ranks if rank.host >= count - 2]
    return there, there


def trial(fault, count, per_host, call):
    global failed
    what = f"{fault}, {count} hosts x {per_host}, {call}"
    hosts = Hosts(options.source / "scripts/namespace-hosts", count)
    ranks = []
    try:
        # They meet when all are here, so nobody's first line is waited for before.
        ranks = start_all(hosts, count * per_host, per_host, call)
        time.sleep(0.3)
        begin = time.monotonic()
        lost, blamed = inject(fault, hosts, ranks, count)
        names = "|".join(str(rank.rank) for rank in blamed)
        worst = 0
        for rank in ranks:
            if rank in lost:
                continue
            try:
                text = rank.process.communicate(timeout=max(0.1, begin + 15 - time.monotonic()))[0]
            except subprocess.TimeoutExpired:
                text = "it never ended"
            took = time.monotonic() - begin
            worst = max(worst, took)
            named = "send|recv" if call == "send" else call
            whole = re.search(rf"^rank {rank.rank}: ({named}) #\d+ 'x' of \d+ fp32( (from|to) rank \d+)?: .*"
                              rf"\(rank ({names}) is on h\d+, [0-9.]+\)", text, re.M)
            if took > LIMIT_S or not whole:
                failed += 1
                print(f"FAIL  {what}: rank {rank.rank} after {took:.1f} s: {text.strip()}")
        took_s[fault].append(worst)
        print(f"      {what}: every survivor within {worst:.2f} s", flush=True)
    finally:
        for rank in ranks:
            rank.process.kill()
        hosts.down()


def start_all(hosts, size, per_host, call):
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: Rank(hosts, rank, size, per_host, call), range(size)))


turn = 0
for count in map(int, options.hosts.split(",")):
    for per_host in map(int, options.per_host.split(",")):
        for number, fault in enumerate(FAULTS):
            call = CALLS[(turn + number) % len(CALLS)]
            if fault != FAULTS[-1]:
                trial(fault, count, per_host, call)
            elif count > 2:  # neither of them is rank 0's
                trial(fault, count, per_host, "all_reduce" if call == "broadcast" else call)
        turn += 1
print(f"\n{'until every survivor had its error, seconds':<44}{'trials':>8}{'median':>8}{'most':>8}")
for fault, seconds in took_s.items():
    if seconds:
        print(f"{fault:<44}{len(seconds):>8}{statistics.median(seconds):>8.2f}{max(seconds):>8.2f}")
print(f"{failed} failed" if failed else "all named")
sys.exit(1 if failed else 0)
