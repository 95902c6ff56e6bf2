#!/usr/bin/env python3
"""Seeded faults of fifteen kinds, on four hosts of two ranks whose agents run as children of this machine: the
cause has to be the right rank and host with the right reason, the exit code the right one, and nothing may be
left. Prints one line for each kind.

  run_faults.py SMP_LAUNCH [--runs N (of each kind)] [--seed S] [--kind NAME ...]
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SSHD = "/usr/sbin/sshd"
HOSTS, PER_HOST = 4, 2
RANKS = HOSTS * PER_HOST
SIGNALS = {"SEGV": 139, "ABRT": 134, "KILL": 137, "FPE": 136, "BUS": 135, "ILL": 132}


class Skipped(Exception):
    pass


class MemoryGroup:
    """A control group whose processes may take 256 MiB together, and no swap; a sanitized smp-launch takes a
    hundred."""
    MOST = str(256 << 20)
    LIMITS = {
        "/sys/fs/cgroup/memory": {"memory.limit_in_bytes": MOST, "memory.memsw.limit_in_bytes": MOST},
        "/sys/fs/cgroup": {"memory.max": MOST, "memory.swap.max": "0"},
    }

    def __init__(self, name):
        for root, limits in self.LIMITS.items():
            self.path = pathlib.Path(root, name)
            try:
                self.path.mkdir()
            except OSError:
                continue
            try:
                if os.access(self.path / "cgroup.procs", os.W_OK):
                    for number, (limit, most) in enumerate(limits.items()):
                        if number == 0 or self.path.joinpath(limit).exists():  # that of swap may not
                            self.path.joinpath(limit).write_text(most)
                    return
            except OSError:
                pass
            self.path.rmdir()
        raise Skipped("no control group may be made here")

    def remove(self):
        """When its last process has gone."""
        deadline = time.monotonic() + 20
        while True:
            try:
                return self.path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


class Run:
    """One job in which one thing goes wrong."""

    def __init__(self, launch, kind, seed):
        self.random = random.Random(f"{kind} {seed}")
        self.launch, self.kind = launch, kind
        self.rank = self.random.randrange(RANKS)
        self.host = "abcd"[self.rank // PER_HOST]
        self.delay = self.random.random() * 0.05
        self.mark = f"{200000 + os.getpid() % 100000}.{seed}{self.random.randrange(10**6)}"
        self.folder = tempfile.TemporaryDirectory()
        self.report = self.folder.name + "/report.json"
        self.via = "exec:exec $SMP_AGENT --agent"
        self.options = []
        self.own_number = f"echo $$ > {self.folder.name}/pid-$RANK;"

    def start(self, on_rank, on_others="", before=""):
        """The rank does its thing after a while, the others something else; each has a child in a session of
        its own that does not obey."""
        script = (f"setsid sh -c 'trap \"\" TERM; sleep {self.mark} & wait; sleep {self.mark}' & "
                  f"echo $PPID > {self.folder.name}/agent-$RANK; {before} "
                  f"if [ $RANK = {self.rank} ]; then sleep {self.delay}; {on_rank} else {on_others or ':;'} fi; "
                  f"sleep {self.mark}")
        return subprocess.Popen(
            [self.launch, "--hosts", ",".join(
                f"{host}:{PER_HOST}" for host in "abcd"), "--via", self.via, "--report", self.report,
             "--run-dir", self.folder.name + "/run", *self.options, "--", "sh", "-c", script],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def end(self, program):
        _, self.errors = program.communicate(timeout=100)
        self.code = program.returncode
        self.json = json.loads(pathlib.Path(self.report).read_text() or "{}")

    def go(self, *arguments, **more):
        self.end(self.start(*arguments, **more))

    def agent(self):
        """The process that watches the ranks on the host, once they all run."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            files = [pathlib.Path(self.folder.name, f"agent-{rank}") for rank in range(RANKS)]
            if all(file.exists() and file.read_text().endswith("\n") for file in files):
                return int(files[self.rank].read_text())
            time.sleep(0.005)
        raise RuntimeError("the ranks do not start")

    def left(self):
        count = 0
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                count += words[:2] == [b"sleep", self.mark.encode()]
            except OSError:
                continue
        return count

    def problem(self, code, text, host_is_cause=False):
        cause = self.json.get("cause", {})
        if self.code != code:
            return f"exit code {self.code}, not {code}"
        if cause.get("host") != self.host or (not host_is_cause and cause.get("rank") != self.rank):
            return f"not rank {self.rank} on host {self.host}"
        return "" if text in self.errors else f"no '{text}'"

    # the kinds; each returns what is wrong, or ""

    def exit_code(self):
        code = self.random.randrange(1, 256)
        self.go(f"exit {code};")
        return self.problem(code, f"rank {self.rank} on host {self.host} ended with exit code {code}")

    def by_signal(self):
        name = self.random.choice(sorted(SIGNALS))
        self.go(f"ulimit -c 0; kill -{name} $$;")
        return self.problem(SIGNALS[name], f"was killed by SIG{name}")

    def once_gone(self, rank):
        """Shell: waits until that rank, which writes its number down, is no more and its agent knows."""
        number = f"{self.folder.name}/pid-{rank}"
        return f"until [ -s {number} ]; do sleep 0.01; done; while kill -0 $(cat {number}) 2>/dev/null; do :; done; "

    def followed_by_others(self):
        """Those that lose a peer end too, with an exit code."""
        self.go("kill -SEGV $$;", f"{self.once_gone(self.rank)} exit 1;", before=self.own_number)
        return self.problem(139, "was killed by SIGSEGV")

    def blamed_first(self):
        """The others say whom they lost before its end is known."""
        blame = (f'printf \'{{"kind":"peer_lost","culprit":{self.rank},"phase":"step 3","message":"lost"}}\' '
                 f"> $SMP_ERROR_FILE; exit 1;")
        ready, witness = f"{self.folder.name}/ready", (self.rank + PER_HOST) % RANKS
        self.go(f"touch {ready}; {self.once_gone(witness)} kill -SEGV $$;",
                f"until [ -e {ready} ]; do sleep 0.01; done; {blame}", before=self.own_number)
        return self.problem(139, "was killed by SIGSEGV")

    def last_words(self):
        self.go('printf \'{"kind":"out_of_memory","message":"asked for 5 MiB"}\' > $SMP_ERROR_FILE; exit 9;')
        return self.problem(9, "asked for 5 MiB")

    def torch_words(self):
        self.go('printf \'{"message":{"message":"ValueError: y"}}\' > $TORCHELASTIC_ERROR_FILE; exit 1;')
        return self.problem(1, "ValueError: y")

    def out_of_memory(self):
        group = MemoryGroup(f"smp-faults-{self.mark}")
        try:
            self.via = f"exec:[ $SMP_HOST != {self.host} ] || echo $$ > {group.path}/cgroup.procs; exec $SMP_AGENT --agent"
            self.go("exec python3 -c 'bytearray(1 << 30)';")
        finally:
            group.remove()
        return self.problem(137, f"rank {self.rank} on host {self.host} was killed by SIGKILL (Killed) by the kernel: "
                            "out of memory")

    def stuck(self):
        blame = (f'printf \'{{"kind":"timeout","culprit":{self.rank},"message":"waited"}}\' > $SMP_ERROR_FILE; '
                 f"exit 124;")
        other = (self.rank + PER_HOST) % RANKS
        number = f"{self.folder.name}/pid-{self.rank}"
        self.go("kill -STOP $$;", f"if [ $RANK = {other} ]; then until [ -s {number} ]; do sleep 0.01; done; "
                f"until [ $(cut -d' ' -f3 /proc/$(cat {number})/stat) = T ]; do sleep 0.01; done; {blame} fi;",
                before=self.own_number)
        return self.problem(124, f"rank {self.rank} on host {self.host} stopped responding: a signal such as SIGSTOP has stopped its process")

    def agent_killed(self):
        program = self.start(":;")
        os.kill(self.agent(), signal.SIGKILL)
        self.end(program)
        return self.problem(125, f"host {self.host} was lost with ranks ", host_is_cause=True)

    def agent_stopped(self):
        self.options = ["--host-timeout", "1s"]
        program = self.start(":;")
        os.kill(self.agent(), signal.SIGSTOP)
        self.end(program)
        return self.problem(125, "no heartbeat for 1.0 s", host_is_cause=True)

    def host_missing(self):
        self.via = f"exec:[ $SMP_HOST = {self.host} ] && {{ echo gone >&2; exit 255; }}; exec $SMP_AGENT --agent"
        self.go(":;")
        text = f"1 of 4 hosts could not be used:\n  host {self.host}: no agent: the command ended with exit code 255"
        return "" if self.code == 125 and text in self.errors else "not the host that is missing"

    def program_missing(self):
        self.go(":;", before=f"[ $RANK = {self.rank} ] && exec no-such-program;")
        return self.problem(127, f"rank {self.rank} on host {self.host} ended with exit code 127")

    def port_taken(self):
        """The program's own: whose it is and why stands in its last lines."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            listen = f"import socket; socket.create_server((\"127.0.0.1\", {other.getsockname()[1]}))"
            self.go(f"exec python3 -c '{listen}';")
        return (self.problem(1, f"rank {self.rank} on host {self.host} ended with exit code 1")
                or self.problem(1, "Address already in use"))

    def bad_host_key(self):
        """Of a real sshd behind a real ssh, with no network between: of that host another key is known, or none."""
        if not os.access(SSHD, os.X_OK) or shutil.which("ssh-keygen") is None:
            raise Skipped("there is no sshd (apt-get install openssh-server)")
        if os.getuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        folder = pathlib.Path(self.folder.name)
        for key in ("own", "host", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        public = {key: (folder / f"{key}.pub").read_text() for key in ("own", "host", "other")}
        (folder / "authorized").write_text(public["own"])
        # A shell that is none of the first level does not do what this machine's do when they start.
        (folder / "sshd_config").write_text(f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
                                            "StrictModes no\nUsePAM no\nSetEnv SHLVL=9\n")
        known = {host: public["host"] for host in "abcd"}
        known[self.host] = self.random.choice([public["other"], ""])
        (folder / "known").write_text("".join(f"{host} {key}" for host, key in known.items() if key))
        (folder / "ssh_config").write_text(
            f"Host *\n  ProxyCommand {SSHD} -i -f {folder}/sshd_config\n  IdentityFile {folder}/own\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n")
        self.via, self.options = "ssh", ["--ssh-args", f"-F {folder}/ssh_config"]
        self.go(":;")
        text = (f"smp-launch: 1 of 4 hosts could not be used:\n  host {self.host}: host key not accepted: log in once by "
                "hand, or fix known_hosts (Host key verification failed.)\n")
        return "" if self.code == 125 and text in self.errors else "not the host whose key is another"

    def launcher_killed(self):
        program = self.start(":;")
        if self.random.random() < 0.5:
            self.agent()  # else while it starts
        time.sleep(self.delay)
        program.kill()
        program.communicate(timeout=100)
        return ""


KINDS = [name for name in vars(Run) if name not in
         ("__init__", "start", "end", "go", "agent", "left", "once_gone", "problem") and not name.startswith("_")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("launch")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=KINDS)
    options = parser.parse_args()
    failures = total = 0
    for kind in options.kind or KINDS:
        wrong, seconds, skipped = 0, time.monotonic(), ""
        for number in range(options.runs):
            run = Run(options.launch, kind, options.seed * 100000 + number)
            try:
                problem = getattr(run, kind)()
            except Skipped as reason:
                skipped = str(reason)
                run.folder.cleanup()
                break
            deadline = time.monotonic() + 20
            while run.left() and time.monotonic() < deadline:
                time.sleep(0.02)
            if not problem and run.left():
                problem = f"{run.left()} processes are left"
            if problem:
                wrong += 1
                print(f"{kind} {number}: {problem}\n{getattr(run, 'errors', '')}")
            run.folder.cleanup()
        if skipped:
            print(f"{kind:20} skipped: {skipped}")
            continue
        seconds = time.monotonic() - seconds
        print(f"{kind:20} {options.runs - wrong} of {options.runs} right, {seconds / options.runs:.2f} s each",
              flush=True)
        failures += wrong
        total += options.runs
    print(f"{total - failures} of {total} right, nothing left of them")
    return 1 if failures else 0


sys.exit(main())
