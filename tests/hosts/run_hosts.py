#!/usr/bin/env python3
"""smp-launch on several hosts, made of namespaces with one sshd each (scripts/namespace-hosts), and what
can go wrong with them. Prints what it measures; returns 77 where such hosts may not be made. Of more than 4 hosts
only the start, the death of a rank, of smp-launch and of a host, in each way (scripts/sweep-hosts).

  run_hosts.py SMP_LAUNCH SOURCE_DIR [--hosts N] [--ranks-per-host R]
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from checks import Checks
from namespace_hosts import Hosts

LONGEST_S = 10  # 3.5 s it is on a quiet machine; a host that is not found has no limit


class Test(Checks):
    def __init__(self, options):
        self.launch, self.per_host = options.launch, options.ranks_per_host
        self.hosts = Hosts(pathlib.Path(options.source, "scripts/namespace-hosts"), options.hosts)
        self.marks = 0

    def command(self, options, program, list_of_hosts=None):
        named = list_of_hosts or f"h[1-{self.hosts.count}]:{self.per_host}"
        return [self.launch, "--hosts", named, "--ssh-args", f"-F {self.hosts.folder}/ssh_config", *options,
                "--", *program]

    def run(self, options, program, list_of_hosts=None, env=None):
        start = time.monotonic()
        done = subprocess.run(self.command(options, program, list_of_hosts), capture_output=True, text=True,
                              timeout=200, env={**os.environ, **(env or {})}, errors="surrogateescape")
        return done, time.monotonic() - start

    def script(self, text):
        """A shell script whose ranks, and a process of each in a session of its own, sleep until they are
        ended, under a number that no other process has. Each rank says that it is there."""
        self.marks += 1
        self.mark = f"{100000 + os.getpid() % 10000}.{self.marks}"
        return ["sh", "-c", f"setsid sh -c 'trap \"\" TERM; sleep {self.mark} & wait; sleep {self.mark}' & "
                            f"echo up; {text}sleep {self.mark}"]

    def alive(self):
        count = 0
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                count += words[:2] == [b"sleep", self.mark.encode()]
            except OSError:
                continue
        return count

    def gone_after(self, limit=20):
        start = time.monotonic()
        while self.alive() and time.monotonic() - start < limit:
            time.sleep(0.01)
        return self.alive() == 0, time.monotonic() - start

    def started(self, options, text=""):
        program = subprocess.Popen(self.command(["--show-ranks", "all", *options], self.script(text)),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(self.hosts.count * self.per_host):
            program.stdout.readline()
        deadline = time.monotonic() + 60
        while self.alive() < 2 * self.hosts.count * self.per_host and time.monotonic() < deadline:
            time.sleep(0.01)
        return program

    # the cases

    def places(self, what="every rank on its host", options=()):
        done, seconds = self.run(["--show-ranks", "all", *options],
                                 ["sh", "-c", "echo $(hostname) $LOCAL_RANK $MASTER_ADDR"])
        address = pathlib.Path(self.hosts.folder, "hosts").read_text().splitlines()[1].split()[0]
        lines = {f"[{host * self.per_host + rank}] h{host + 1} {rank} {address}"
                 for host in range(self.hosts.count) for rank in range(self.per_host)}
        self.check(f"{what}, {seconds:.2f} s for {len(lines)} ranks",
                   done.returncode == 0 and set(done.stdout.splitlines()) == lines, done.stdout + done.stderr)

    def bytes_exact(self):
        arguments = ["", " ", "$HOME", "`x`", "'", '"', "\\", "*", "\n", "\udcff\udcfe", "-n", "--"]
        arguments += ["".join(arguments[i:i + 3]) * (1 + i * 7 % 50) for i in range(10)] * 9
        values = {f"SMP_TEST_{i}": text for i, text in enumerate(arguments[:100])}
        program = ("import os, sys; print(os.fsencode(chr(0).join(sys.argv[1:])).hex());"
                   "print(os.fsencode(chr(0).join(os.environ['SMP_TEST_%d' % i] for i in range(100))).hex())")
        done, _ = self.run([], ["python3", "-c", program, *arguments], "h1,h2", values)
        shown = "".join(line[4:] for line in done.stdout.splitlines())  # long lines are cut on the console
        expected = os.fsencode("\0".join(arguments)).hex() + os.fsencode("\0".join(values.values())).hex()
        self.check(f"{len(arguments)} arguments and 100 variables arrive bit-exact", shown == expected,
                   done.stderr + shown[:500])

    def secrets_stay(self):
        done, _ = self.run(["--env", "MINE=1"], ["sh", "-c", "echo ${NCCL_X-no} ${AWS_KEY-no} ${MY_TOKEN-no} $MINE"],
                           "h1,h2", {"NCCL_X": "yes", "AWS_KEY": "secret", "MY_TOKEN": "secret"})
        self.check("variables by the rules", done.stdout == "[0] yes no no 1\n", done.stdout + done.stderr)

    def rank_dies(self):
        with tempfile.TemporaryDirectory() as folder:
            done, _ = self.run(["--report", folder + "/r.json"],
                               self.script("test $RANK = 3 && { sleep 0.3; kill -SEGV $$; }; "))
            report = json.load(open(folder + "/r.json"))
        gone, _ = self.gone_after()
        after = report["elapsed_ms"] - report["ranks"][3]["after_ms"]
        host = f"h{3 // self.per_host + 1}"
        self.check(f"rank 3 dies of SIGSEGV: all have ended after {after} ms",
                   done.returncode == 139 and gone and report["cause"]["host"] == host
                   and f"smp-launch: rank 3 on host {host} was killed by SIGSEGV" in done.stderr, done.stderr)

    def launcher_killed(self):
        program = self.started([])
        program.send_signal(signal.SIGKILL)
        program.wait()
        gone, seconds = self.gone_after()
        self.check(f"kill -9 of smp-launch: nothing left after {seconds * 1e3:.0f} ms", gone,
                   f"{self.alive()} processes are left")

    def agent_killed(self, which):
        program = self.started([])
        agents = sorted(pid for pid, name in self.hosts.pids("h2") if name == which)
        os.kill(agents[0], signal.SIGKILL)
        _, errors = program.communicate(timeout=100)
        gone, _ = self.gone_after()
        self.check(f"kill -9 of {which} on h2", gone and program.returncode == 125
                   and "smp-launch: host h2 was lost with ranks " in errors, errors)

    def inner_agent_killed(self):
        """h1 reaches h2, and h3 h4."""
        program = self.started(["--fan-out", "2"])
        agents = sorted(pid for pid, name in self.hosts.pids("h3") if name == "smp-supervise")
        os.kill(agents[0], signal.SIGKILL)
        _, errors = program.communicate(timeout=100)
        gone, _ = self.gone_after()
        self.check("kill -9 of an agent that reaches h4: both are lost, it is the cause", gone
                   and program.returncode == 125 and "smp-launch: host h3 was lost with ranks " in errors
                   and "its connection runs through host h3, which was lost" in errors, errors)

    def lost(self, what, break_it, mend=None, options=()):
        program = self.started(["--grace", "1s", *options])
        start = time.monotonic()
        break_it()
        _, errors = program.communicate(timeout=100)
        seconds = time.monotonic() - start
        gone, cleaning = self.gone_after()
        self.check(f"{what}: told after {seconds:.1f} s, all gone {cleaning:.1f} s later",
                   gone and program.returncode == 125 and seconds <= LONGEST_S
                   and "smp-launch: host h2 was lost with rank" in errors, errors + f"{self.alive()} left")
        if mend:
            mend()

    def stop_agent(self):
        for pid, name in self.hosts.pids("h2"):
            if name == "smp-supervise":
                os.kill(pid, signal.SIGSTOP)

    def unreachable(self):
        config = pathlib.Path(self.hosts.folder, "ssh_config").read_text()
        other = pathlib.Path(self.hosts.folder, "other_config")
        address = pathlib.Path(self.hosts.folder, "hosts").read_text().splitlines()[1].split()[0]
        other.write_text(f"Host badkey\n  HostName {address}\n  HostKeyAlias stranger\n"
                         f"Host denied\n  HostName {address}\n  HostKeyAlias h1\n  PubkeyAuthentication no\n"
                         f"Host refused\n  HostName {address}\n  Port 9\n" + config)
        done = subprocess.run([self.launch, "--hosts", "h1,badkey,denied,refused,h2", "--ssh-args", f"-F {other}",
                               "--", "true"], capture_output=True, text=True, timeout=200)
        for host, reason in (("badkey", "host key not accepted"), ("denied", "login refused"),
                             ("refused", "connection refused")):
            self.check(f"{host}: {reason}", done.returncode == 125 and f"\n  host {host}: {reason}" in done.stderr,
                       done.stderr)
        self.check("... and no other host is named", "3 of 5 hosts" in done.stderr, done.stderr)

    def all(self):
        self.places()
        self.places("... and reached by each other", ["--fan-out", "2" if self.hosts.count <= 4 else "8"])
        if self.hosts.count <= 4:
            self.bytes_exact()
            self.secrets_stay()
            self.unreachable()
        self.rank_dies()
        self.launcher_killed()
        if self.hosts.count <= 4:
            self.agent_killed("smp-supervise")
            self.agent_killed("smp-launch")
            self.inner_agent_killed()
        self.lost("a stopped agent", self.stop_agent)
        self.lost("a cut network", lambda: self.hosts.tell("cut", "h2"), lambda: self.hosts.tell("join", "h2"))
        self.lost("a host without power", lambda: self.hosts.tell("off", "h2"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("launch")
    parser.add_argument("source")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks-per-host", type=int, default=2)
    test = Test(parser.parse_args())
    try:
        test.all()
    finally:
        test.hosts.down()
    return 1 if test.failed else 0


sys.exit(main())
