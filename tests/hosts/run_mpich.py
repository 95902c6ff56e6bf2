#!/usr/bin/env python3
"""smp-launch under MPICH's mpiexec.hydra on this machine. Returns 77, with the reason, where there is none.

  run_mpich.py SMP_LAUNCH
"""
import shutil
import subprocess
import sys

from checks import SKIPPED, Checks

launch = sys.argv[1]
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
sys.exit(1 if checks.failed else 0)
