#!/usr/bin/env python3
"""smp-launch under MPICH's mpiexec.hydra on this machine, and by it on hosts made of namespaces. Returns 77, with the
reason, where there is none, or no such hosts may be made.

  run_mpich.py SMP_LAUNCH SOURCE_DIR
"""
import os
import pathlib
import shutil
import subprocess
import sys

from checks import SKIPPED, Checks
from namespace_hosts import Hosts

launch, source = sys.argv[1:]
checks = Checks()
check = checks.check
if not shutil.which("mpiexec.hydra"):
    print("skipped: there is no mpiexec.hydra (apt-get install mpich)")
    sys.exit(SKIPPED)


def run(processes, script):
    return subprocess.run(["mpiexec.hydra", "-n", str(processes), launch, "--inside", "mpirun", "--show-ranks", "all",
                           "--", "/bin/sh", "-c", script], capture_output=True, text=True, timeout=200)


done = run(4, "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE ${PMI_RANK-none}")
check("4 ranks, placed as MPICH placed its processes, whose variables they do not see",
      done.returncode == 0 and sorted(done.stdout.splitlines()) == [f"[{r}] {r} {r} 4 4 none" for r in range(4)],
      done.stdout + done.stderr)
done = run(3, "test $RANK = 2 && exit 7; sleep 30")
check("a rank that fails ends all, with its code", done.returncode == 7
      and "smp-launch: rank 2 ended with exit code 7" in done.stderr, f"{done.returncode}\n{done.stderr}")
done = run(3, "test $RANK = 1 && kill -SEGV $$; sleep 30")
check("a rank that a signal kills is named", done.returncode == 139
      and "smp-launch: rank 1 was killed by SIGSEGV" in done.stderr, f"{done.returncode}\n{done.stderr}")

hosts = Hosts(pathlib.Path(source, "scripts/namespace-hosts"), 2)
try:
    # Its mpirun is not always the one in PATH.
    programs = pathlib.Path(hosts.folder, "programs")
    programs.mkdir()
    (programs / "mpirun").write_text(f"#!/bin/sh\nexec {shutil.which('mpiexec.hydra')} \"$@\"\n")
    (programs / "mpirun").chmod(0o755)
    here = pathlib.Path(hosts.folder, "hosts").read_text().splitlines()[1].split()[0].rsplit(".", 1)[0] + ".254"
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
                   "HYDRA_LAUNCHER_EXTRA_ARGS": f"-F {hosts.folder}/ssh_config"}

    key = pathlib.Path(hosts.folder, "meeting-key")
    key.write_text("a secret of the test's own\n")
    key.chmod(0o600)
    done = subprocess.run(["mpiexec.hydra", "-launcher", "ssh", "-localhost", here, "-hosts", "h1:2,h2:2", "-n", "4", launch,
                           "--inside", "mpirun", "--rendezvous", "h1:29400", "--key-file", str(key), "--show-ranks", "all",
                           "--", "/bin/sh", "-c", "echo $RANK $LOCAL_RANK $(hostname)"],
                          capture_output=True, text=True, timeout=200, env=environment)
    check("2 ranks on each of two hosts", done.returncode == 0
          and sorted(done.stdout.splitlines()) == ["[0] 0 0 h1", "[1] 1 1 h1", "[2] 2 0 h2", "[3] 3 1 h2"],
          done.stdout + done.stderr)

    def via(script):
        return subprocess.run([launch, "--via", "mpirun", "--hosts", "h2:2,h1:1", "--rendezvous", f"{here}:29413",
                               "--mpirun-args", f"-launcher ssh -localhost {here}", "--show-ranks", "all", "--", "/bin/sh",
                               "-c", script], capture_output=True, text=True, timeout=200, env=environment)

    done = via("echo $RANK $LOCAL_RANK $(hostname) ${PMI_RANK-none} ${SMP_MEETING_KEY-none}")
    check("--via mpirun: ranks on two hosts, the key is nobody's", done.returncode == 0
          and sorted(done.stdout.splitlines()) == ["[0] 0 0 h2 none none", "[1] 1 1 h2 none none",
                                                   "[2] 2 0 h1 none none"], done.stdout + done.stderr)
    done = via("test $RANK = 2 && kill -SEGV $$; sleep 30")
    check("--via mpirun: a rank that dies ends all, and is named", done.returncode == 139
          and "smp-launch: rank 2 on host h1 was killed by SIGSEGV" in done.stderr, done.stderr)
finally:
    hosts.down()
sys.exit(1 if checks.failed else 0)
