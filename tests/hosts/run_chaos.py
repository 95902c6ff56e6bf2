#!/usr/bin/env python3
"""Chaos: jobs on four hosts made of namespaces, and in each at a random moment, from before the hosts are reached until all
ranks run, something dies, stops, or is cut off: a rank, an agent or its guard, smp-launch or its guard, a network, a host's
power; in every third job two of them. Soon nothing may be left, here and on every host, also behind a cut cable, and what
smp-launch says has to be what was done. Returns 77 where such hosts may not be made.

  run_chaos.py SMP_LAUNCH SOURCE_DIR [--jobs N] [--seed S] [--longest SECONDS]
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from namespace_hosts import Hosts

HOSTS, PER_HOST = 4, 2
CONNECT_S = 15  # what smp-launch waits for a host that does not answer


def processes(first_words):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            if words[:len(first_words)] == first_words:
                found.append(int(entry))
        except OSError:
            continue
    return found


class Job:
    """One job and what happens to it. `allowed`: texts of which smp-launch has to say one, with their exit codes."""

    def __init__(self, launch, hosts, chance, number):
        self.hosts, self.chance, self.allowed, self.silent, self.mend = hosts, chance, [], False, []
        self.done, self.begin = [], time.monotonic()
        self.mark = f"{600000 + os.getpid() % 100000}.{number}"
        self.folder = tempfile.TemporaryDirectory()
        script = (f"echo $$ >{self.folder.name}/rank-$RANK; setsid sh -c 'trap \"\" TERM; sleep {self.mark}' & "
                  f"sleep {self.mark}")
        self.program = subprocess.Popen(
            [launch, "--hosts", f"h[1-{HOSTS}]:{PER_HOST}", "--ssh-args", f"-F {hosts.folder}/ssh_config", "--grace", "500ms",
             "--connect-timeout", f"{CONNECT_S}s", "--", "sh", "-c", script],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def note(self, what):
        self.done.append(f"{what} after {time.monotonic() - self.begin:.2f} s")

    def running(self):
        return self.program.poll() is None

    def sleepers(self):
        return processes([b"sleep", self.mark.encode()])

    def kill(self, pids, number=signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # it has ended meanwhile

    def host(self):
        return f"h{self.chance.randrange(HOSTS) + 1}"

    def lost(self, host):
        self.allowed.append((125, rf"host {host} was lost with rank|could not be used:\n(.*\n)*  host {host}: "))

    def of_agent(self, host, name):
        """Its processes of that name, once there are some: sshd's children have other names."""
        while self.running():
            try:
                found = [pid for pid, comm in self.hosts.pids(host) if comm == name]
            except (IndexError, OSError):
                return []  # the host has no power any more
            if found:
                return found
            time.sleep(0.002)
        return []

    # what can happen

    def a_rank_dies(self):
        number, own = self.chance.randrange(HOSTS * PER_HOST), None
        while self.running() and own is None:
            text = pathlib.Path(self.folder.name, f"rank-{number}")
            own = text.read_text().strip() or None if text.exists() else None
            time.sleep(0.002)
        host = f"h{number // PER_HOST + 1}"
        self.note(f"rank {number} killed")
        self.allowed.append((137, rf"rank {number} on host {host} was killed by SIGKILL"))
        if not own:
            return
        try:  # its number on its own host, which may have lost its power
            self.kill([pid for pid, comm in self.hosts.pids(host) if comm == "sh" and own == inner_number(pid)])
        except (IndexError, OSError):
            pass

    def an_agent_dies(self):
        host = self.host()
        self.lost(host)
        name = self.chance.choice(["smp-supervise", "smp-launch"])
        self.kill(self.of_agent(host, name)[:1])
        self.note(f"{name} on {host} killed")

    def an_agent_stops(self):
        host = self.host()
        self.lost(host)
        self.kill(self.of_agent(host, "smp-supervise"), signal.SIGSTOP)
        self.note(f"smp-supervise on {host} stopped")

    def smp_launch_dies(self):
        self.silent = True
        self.program.kill()
        self.note("smp-launch killed")

    def its_guard_dies(self):
        """The process below it, which is the parent of all that it starts."""
        self.allowed.append((125, "its supervising process was killed by signal 9"))
        children = pathlib.Path(f"/proc/{self.program.pid}/task/{self.program.pid}/children").read_text().split()
        self.kill(map(int, children))
        self.note("its guard killed")

    def a_network_is_cut(self):
        host = self.host()
        self.lost(host)
        self.hosts.tell("cut", host)
        self.note(f"{host} cut off")
        self.mend.append(lambda: self.hosts.tell("join", host))

    def a_host_loses_power(self):
        host = self.host()
        self.lost(host)
        self.hosts.tell("off", host)
        self.note(f"{host} without power")
        self.mend.append(None)  # by hosts anew

    def end(self, longest_s):
        """What is wrong, or "", and how long it took."""
        begin = time.monotonic()
        try:
            errors = self.program.communicate(timeout=longest_s)[1]
        except subprocess.TimeoutExpired:
            self.program.kill()
            return f"smp-launch is there after {longest_s} s: {self.program.communicate()[1]}", longest_s
        while self.sleepers() and time.monotonic() - begin < longest_s:
            time.sleep(0.01)
        seconds = time.monotonic() - begin
        if self.sleepers():
            return f"{len(self.sleepers())} processes are left", seconds
        code = self.program.returncode
        known = self.silent or any(code == one and re.search(text, errors) for one, text in self.allowed)
        return "" if known else f"exit code {code}, {self.allowed}:\n{errors}", seconds


def inner_number(pid):
    """Its number in its own namespace of processes."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
    return next(line for line in status.splitlines() if line.startswith("NSpid")).split()[-1]


KINDS = [name for name in vars(Job) if name.startswith(("a_", "an_", "smp_", "its_"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launch")
    parser.add_argument("source")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=30.0)
    parser.add_argument("--job", type=int, action="append", help="this one alone")
    options = parser.parse_args()
    slowest, wrong = dict.fromkeys(KINDS, 0.0), 0
    numbers = options.job or range(options.jobs)
    script = pathlib.Path(options.source, "scripts/namespace-hosts")
    hosts = Hosts(script, HOSTS)
    try:
        for number in numbers:
            chance = random.Random(f"{options.seed} {number}")
            job = Job(options.launch, hosts, chance, number)
            kinds = [chance.choice(KINDS) for _ in range(2 if number % 3 == 2 else 1)]
            for kind in kinds:
                time.sleep(chance.uniform(0, 1.0))
                if job.running():
                    getattr(job, kind)()
            problem, seconds = job.end(options.longest)
            if len(kinds) == 1:
                slowest[kinds[0]] = max(slowest[kinds[0]], seconds)
            if problem:
                wrong += 1
                print(f"FAIL  job {number}, {', then '.join(job.done)}: {problem}", flush=True)
                job.kill(job.sleepers())
            if None in job.mend:
                hosts.down()
                hosts = Hosts(script, HOSTS)
            else:
                for mend in job.mend:
                    mend()
            job.folder.cleanup()
    finally:
        hosts.down()
    for kind, seconds in slowest.items():
        print(f"{kind.replace('_', ' '):22} the slowest end after {seconds:.1f} s")
    print(f"{len(numbers) - wrong} of {len(numbers)} jobs: all has ended, and what was said is what was done")
    return 1 if wrong else 0


sys.exit(main())
