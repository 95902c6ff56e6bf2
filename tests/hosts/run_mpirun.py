#!/usr/bin/env python3
"""smp-launch under a real mpirun of Open MPI, on this machine and on hosts made of namespaces. Returns 77, with the
reason, where there is no mpirun or no such hosts may be made.

  run_mpirun.py SMP_LAUNCH SOURCE_DIR
"""
import os
import pathlib
import shutil
import subprocess
import sys

from namespace_hosts import SKIPPED, Hosts

launch, source = sys.argv[1:]
failed = 0
if not shutil.which("mpirun") or "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True,
                                                                   text=True).stdout:
    print("skipped: there is no mpirun of Open MPI (apt-get install openmpi-bin)")
    sys.exit(SKIPPED)


def check(what, holds, text):
    global failed
    print(f"{'ok  ' if holds else 'FAIL'}  {what}")
    if not holds:
        failed += 1
        print("      " + text.replace("\n", "\n      "))


def run(mpi, own, script):
    return subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", *mpi, launch, "--inside", "mpirun",
                           "--show-ranks", "all", *own, "--", "/bin/sh", "-c", script],
                          capture_output=True, text=True, timeout=60)


def places(what, mpi, own, hosts):
    done = run(mpi, own, "echo $RANK $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE ${OMPI_COMM_WORLD_RANK-none}")
    expected = [f"[{rank}] {rank} {rank % (4 // hosts)} {rank // (4 // hosts)}/{hosts} none" for rank in range(4)]
    check(what, done.returncode == 0 and sorted(done.stdout.splitlines()) == expected, done.stdout + done.stderr)


places("4 ranks on one host", ["-n", "4"], [], 1)
done = run(["-n", "3"], [], "grep Cpus_allowed_list /proc/self/status")
whole = subprocess.run(["grep", "Cpus_allowed_list", "/proc/self/status"], capture_output=True, text=True).stdout
check("no rank is bound to the core of one process of mpirun",
      done.stdout.count(whole.split("\t")[1].strip()) == 3, done.stdout)
done = run(["-n", "3"], [], "test $RANK = 2 && exit 7; sleep 30")
check("a rank that fails ends all, with its code", done.returncode == 7
      and "smp-launch: rank 2 ended with exit code 7" in done.stderr, done.stderr)

hosts = Hosts(pathlib.Path(source, "scripts/namespace-hosts"), 2)
try:
    key = pathlib.Path(hosts.folder, "meeting-key")
    key.write_text("a secret of the test's own\n")
    key.chmod(0o600)
    mpi = ["-n", "4", "--host", "h1:2,h2:2", "--mca", "plm_rsh_args", f"-F {hosts.folder}/ssh_config"]
    own = ["--rendezvous", "h1:29400", "--key-file", str(key)]
    places("2 ranks on each of two hosts", mpi, own, 2)
    done = run(mpi, own, "test $RANK = 3 && kill -SEGV $$; sleep 30")
    check("a rank that dies on the second ends all, and is named with it", done.returncode == 139
          and "rank 3 on host node1 (h2) was killed by SIGSEGV" in done.stderr, done.stdout + done.stderr)
finally:
    hosts.down()
sys.exit(1 if failed else 0)
