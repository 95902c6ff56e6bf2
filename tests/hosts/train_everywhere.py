#!/usr/bin/env python3
"""One job, started by smp-launch alone, by two agents of this machine (exec), by mpirun (--via mpirun), under mpirun (--inside
mpirun) and inside a real Slurm of this machine: the losses have to be equal to the bit. What is not installed is said and left out.

  train_everywhere.py SMP_PLAN SMP_LAUNCH SOURCE_DIR [--job FILE] [--steps N]
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile


class Test:
    def __init__(self, options, folder):
        self.options, self.folder, self.failed = options, pathlib.Path(folder), 0
        self.plan = str(self.folder / "plan.yaml")
        subprocess.run([options.plan, options.job, "-o", self.plan, "--set", f"training.steps={options.steps}", "--set",
                        "training.checkpoint.every_steps=0"], check=True, stdout=subprocess.DEVNULL)
        self.expected = self.losses("alone", [])

    def losses(self, name, launch, before=(), **environment):
        run = self.folder / name.replace(" ", "-")
        done = subprocess.run([*before, self.options.launch, *launch, "--run-dir", str(run), self.plan],
                              capture_output=True, text=True, timeout=1200, env={**os.environ, **environment})
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stdout}\n{done.stderr}")
        return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]

    def same(self, name, *arguments, **environment):
        losses = self.losses(name, *arguments, **environment)
        good = losses == self.expected and len(losses) == self.options.steps
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'}  {name}: {len(losses)} losses, equal to the bit: {losses == self.expected}",
              flush=True)

    def all(self):
        self.same("exec", ["--hosts", "a:2,b:2", "--via", "exec:exec $SMP_AGENT --agent"])
        if shutil.which("mpirun") and "Open MPI" in subprocess.run(["mpirun", "--version"], capture_output=True,
                                                                   text=True).stdout:
            root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            self.same("by mpirun", ["--via", "mpirun", "--hosts", "localhost:4"], **root)
            self.same("under mpirun", ["--inside", "mpirun"], ["mpirun", "--oversubscribe", "-n", "4"], **root)
        else:
            print("left out: there is no mpirun of Open MPI")
        script = str(pathlib.Path(self.options.source, "scripts/slurm-hosts"))
        slurm = self.folder / "allocation"
        up = subprocess.run([script, "up", "2", str(slurm)], capture_output=True, text=True)
        if up.returncode != 0:
            print(f"left out: {up.stdout}{up.stderr}")
            return
        try:
            self.same("slurm", ["--hosts", "slurm"], ["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2"],
                      SLURM_CONF=str(slurm / "slurm.conf"))
        finally:
            subprocess.run([script, "down", str(slurm)], check=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    parser.add_argument("launch")
    parser.add_argument("source")
    parser.add_argument("--job")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    options.job = options.job or str(pathlib.Path(options.source, "tests/faults/job.yaml"))
    with tempfile.TemporaryDirectory(prefix="smp-train-everywhere-") as folder:
        test = Test(options, folder)
        test.all()
    return 1 if test.failed else 0


sys.exit(main())
