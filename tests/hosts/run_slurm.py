#!/usr/bin/env python3
"""smp-launch inside allocations of a real Slurm, whose four nodes are this machine (scripts/slurm-hosts).
Returns 77, with the reason, where there is no Slurm.

  run_slurm.py SMP_LAUNCH SOURCE_DIR
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from checks import SKIPPED, Checks

launch, source = sys.argv[1:]
script = str(pathlib.Path(source, "scripts/slurm-hosts"))
checks = Checks()
check = checks.check


def allocated(nodes, options, program, launch_options=()):
    named = f"--nodelist=n[1-{nodes}]"  # else those that have just been given back are passed over
    return subprocess.run(["salloc", "--quiet", f"--nodes={nodes}", named, *options, launch, "--hosts", "slurm",
                           "--show-ranks", "all", *launch_options, "--", *program],
                          capture_output=True, text=True, timeout=200)


def places(nodes, options, expected, launch_options=()):
    done = allocated(nodes, options, ["sh", "-c", "echo $SLURMD_NODENAME $LOCAL_RANK"], launch_options)
    lines = sorted(done.stdout.splitlines(), key=lambda line: int(line[1:line.index("]")]))
    ranks = [f"[{rank}] {place}" for rank, place in enumerate(expected)]
    check(f"{nodes} nodes, {' '.join([*options, *launch_options])}", done.returncode == 0 and lines == ranks,
          done.stdout + done.stderr)


def by_srun():
    """Nodes that are named, of an allocation."""
    done = subprocess.run(["salloc", "--quiet", "--nodes=4", "--nodelist=n[1-4]", "--ntasks-per-node=2", launch, "--via", "srun", "--hosts", "n[2-3]:2", "--show-ranks", "all", "--", "sh",
                           "-c", "echo $SLURMD_NODENAME $LOCAL_RANK"], capture_output=True, text=True, timeout=200)
    check("--via srun to two nodes of four", done.returncode == 0
          and sorted(done.stdout.splitlines()) == ["[0] n2 0", "[1] n2 1", "[2] n3 0", "[3] n3 1"],
          done.stdout + done.stderr)


def sleepers(mark):
    found = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += pathlib.Path(f"/proc/{entry}/cmdline").read_bytes() == f"sleep\0{mark}\0".encode()
        except OSError:
            continue
    return found


def left_after(mark):
    """How many are left, once they have had their time to end."""
    deadline = time.monotonic() + 30
    while sleepers(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return sleepers(mark)


def rank_dies():
    mark = f"{300000 + os.getpid()}"
    done = allocated(4, ["--ntasks-per-node=2"], ["sh", "-c", "test $RANK = 5 && { sleep 0.3; kill -SEGV $$; }; "
                                                  f"setsid sleep {mark} & sleep {mark}"])
    check("a rank that dies ends all, and is named with its node",
          done.returncode == 139 and "rank 5 on host n3 was killed by SIGSEGV" in done.stderr
          and left_after(mark) == 0, done.stderr)


def cancelled():
    mark = f"{400000 + os.getpid()}"
    program = subprocess.Popen(["salloc", "--quiet", "--job-name=cancelled", "--nodes=4", "--ntasks-per-node=2", launch, "--hosts", "slurm",
                                "--show-ranks", "all", "--", "sh", "-c",
                                f"echo up; setsid sleep {mark} & sleep {mark}"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(8):
        program.stdout.readline()
    job = subprocess.run(["squeue", "-h", "-n", "cancelled", "-o", "%A"], capture_output=True, text=True).stdout.split()[0]
    subprocess.run(["scancel", job], check=True)
    program.communicate(timeout=200)
    left = left_after(mark)
    check("scancel leaves nothing", left == 0, f"{left} processes are left")


def one_step():
    """However many nodes; and nobody finds the key of the meeting on a command line."""
    mark = f"{500000 + os.getpid()}"
    program = subprocess.Popen(["salloc", "--quiet", "--job-name=one_step", "--nodes=4", "--ntasks-per-node=1", launch,
                                "--hosts", "slurm", "-n", "4", "--show-ranks", "all", "--", "sh", "-c",
                                f"echo up; exec sleep {mark}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(4):
        program.stdout.readline()
    job = subprocess.run(["squeue", "-h", "-n", "one_step", "-o", "%A"], capture_output=True, text=True).stdout.split()[0]
    steps = subprocess.run(["squeue", "-h", "-s", "-j", job, "-o", "%i"], capture_output=True, text=True).stdout.split()
    words = subprocess.run(["ps", "axo", "args"], capture_output=True, text=True).stdout
    subprocess.run(["scancel", job], check=True)
    program.communicate(timeout=200)
    check("four nodes are one step", [step for step in steps if not step.endswith(("extern", "interactive"))] == [f"{job}.0"],
          str(steps))
    check("the key is on no command line", "SMP_MEETING_KEY" in words and "SMP_MEETING_KEY=" not in words, words)
    left_after(mark)


def lost_node():
    """Its agent hears and says nothing any more; a spare takes its place in another step."""
    done = subprocess.run(["salloc", "--quiet", "--no-kill", "--nodes=4", "--ntasks-per-node=1", launch, "--hosts", "slurm",
                           "-n", "3", "--spares", "1", "--max-restarts", "1", "--restart-pause", "10ms", "--host-timeout",
                           "3s", "--show-ranks", "all", "--", "sh", "-c",
                           "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec echo $SLURMD_NODENAME; "
                           "[ $RANK = 1 ] && kill -STOP $PPID; sleep 100"], capture_output=True, text=True, timeout=200)
    check("a lost node: a spare, and the others as they were", done.returncode == 0
          and re.search(r"host n\d was lost with rank 1, .*: no heartbeat for 3.0 s", done.stderr)
          and len(set(line[4:] for line in done.stdout.splitlines())) == 3, done.stdout + done.stderr)


def written_script():
    program = ["/bin/sh", "-c", "echo $SLURMD_NODENAME $LOCAL_RANK; exit 0"]
    written = subprocess.run([launch, "--dry-run=sbatch", "--hosts", "n[1-2]:2", "--job-name", "written",
                              "--show-ranks", "all", "--", *program], capture_output=True, text=True)
    path = folder + "/job.sbatch"
    pathlib.Path(path).write_text(written.stdout)
    tested = subprocess.run(["sbatch", "--test-only", path], capture_output=True, text=True)
    check("sbatch --test-only takes what --dry-run=sbatch writes", written.returncode == tested.returncode == 0,
          written.stdout + written.stderr + tested.stderr)
    ran = subprocess.run(["sbatch", "--wait", "--output", folder + "/written.out", path], capture_output=True,
                         text=True, timeout=200)
    text = pathlib.Path(folder, "written.out").read_text()
    check("and it runs", ran.returncode == 0
          and sorted(text.splitlines()) == ["[0] n1 0", "[1] n1 1", "[2] n2 0", "[3] n2 1"], ran.stderr + text)


folder = tempfile.mkdtemp(prefix="smp-slurm-") + "/slurm"
up = subprocess.run([script, "up", "4", folder], stdout=subprocess.PIPE, text=True)
if up.returncode != 0:
    print(up.stdout, end="")
    shutil.rmtree(os.path.dirname(folder))
    sys.exit(up.returncode)
os.environ["SLURM_CONF"] = folder + "/slurm.conf"
try:
    places(4, ["--ntasks-per-node=2"], [f"n{node} {rank}" for node in range(1, 5) for rank in range(2)])
    places(4, ["--ntasks=8"], [f"n1 {rank}" for rank in range(5)] + ["n2 0", "n3 0", "n4 0"])
    places(2, ["--ntasks-per-node=1"], [f"n{node} {rank}" for node in (1, 2) for rank in range(3)], ["-n", "6"])
    by_srun()
    rank_dies()
    cancelled()
    one_step()
    lost_node()
    written_script()
finally:
    subprocess.run([script, "down", folder], check=True)
    os.rmdir(os.path.dirname(folder))
sys.exit(1 if checks.failed else 0)
