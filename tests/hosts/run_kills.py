#!/usr/bin/env python3
"""kill -9 of smp-launch at a random moment, from before the first rank runs until all do: nothing may be left of
the ranks, of what they forked twice, or put into sessions of its own, one second (--longest) later. A third of the runs
have their ranks here, a third on two hosts whose agents run here (exec), and a third, here, read standard input and are
killed with their whole process group, as by timeout -s KILL; with --ssh as many on hosts made of namespaces.

  run_kills.py SMP_LAUNCH SOURCE_DIR [--runs N] [--ssh N] [--seed S] [--longest SECONDS]
"""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from namespace_hosts import Hosts


def sleepers(mark):
    count = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            count += words[:2] == [b"sleep", mark.encode()]
        except OSError:
            continue
    return count


def kill_once(command, mark, delay_s, longest_s):
    """Of each rank: itself, a child in a session of its own that does not obey, and a daemon (forked twice)."""
    script = (f"setsid sh -c 'trap \"\" TERM; sleep {mark}' & "
              f"sh -c 'setsid sleep {mark} & exit 0'; exec sleep {mark}")
    kill = os.killpg if "--stdin" in command else os.kill
    program = subprocess.Popen([*command, "--", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(delay_s)
    seen = sleepers(mark)
    kill(program.pid, signal.SIGKILL)
    program.wait()
    start = time.monotonic()
    left = sleepers(mark)
    while left and time.monotonic() - start < longest_s:
        time.sleep(0.01)
        left = sleepers(mark)
    return seen, left, time.monotonic() - start


def sweep(what, commands, runs, delays, options):
    chance, most, slowest, orphans, running = random.Random(options.seed), 0, 0.0, 0, 0
    for run in range(runs):
        mark = f"{300000 + os.getpid() % 100000}.{len(what)}{run}"  # seconds that nobody else sleeps
        seen, left, seconds = kill_once(commands[run % len(commands)], mark, chance.uniform(*delays),
                                        options.longest)
        running += seen > 0
        orphans += left
        most, slowest = max(most, seen), max(slowest, seconds)
    print(f"{'ok  ' if orphans == 0 else 'FAIL'}  {what}: {runs} kills, {running} of them with ranks that ran (up to "
          f"{most} processes); {orphans} left, the slowest end after {slowest * 1e3:.0f} ms", flush=True)
    return orphans == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("launch")
    parser.add_argument("source")
    parser.add_argument("--runs", type=int, default=480)
    parser.add_argument("--ssh", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=1.0)
    options = parser.parse_args()
    here = [options.launch, "-n", "4"]
    on_agents = [options.launch, "--hosts", "a:2,b:2", "--via", "exec:exec $SMP_AGENT --agent"]
    fed = [*here, "--stdin", "all"]
    good = sweep("local and exec", [here, on_agents, fed], options.runs, (0.0, 0.15), options)
    if options.ssh:
        hosts = Hosts(pathlib.Path(options.source, "scripts/namespace-hosts"), 4)
        try:
            command = [options.launch, "--hosts", "h[1-4]:2", "--ssh-args", f"-F {hosts.folder}/ssh_config"]
            good = sweep("ssh", [command], options.ssh, (0.2, 2.0), options) and good
        finally:
            hosts.down()
    return 0 if good else 1


sys.exit(main())
