#!/usr/bin/env python3
"""Kills whole training jobs (SIGKILL to smp-launch, which takes the ranks along) at random moments and resumes them,
in another of the given plans each time, until they end. What has to hold: each resume finds a whole checkpoint
once there was one, never falls behind it, and the job's losses are those of a run that nobody disturbed.

  run_checkpoint_kills.py --launcher PATH --kills N --seed S --plan PLAN [--plan PLAN ...]

The plans are layouts of one job that saves often.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

TOLERANCE = 1e-4  # of losses between layouts in fp32, as tests/tolerances.h has it


def losses_of(run):
    path = pathlib.Path(run, "metrics.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["step"]: line["loss"] for line in lines}


def step_of_latest(run):
    path = pathlib.Path(run, "checkpoints", "latest")
    return int(re.match(r"step-(\d+)", path.read_text()).group(1)) if path.exists() else 0


def launch(launcher, run, plan):
    resume = ["--resume"] if step_of_latest(run) else []
    if not resume:
        subprocess.run(["rm", "-rf", run], check=True)
    return subprocess.Popen([launcher, *resume, "--run-dir", run, plan], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plan", action="append", required=True)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    kills = jobs = 0
    with tempfile.TemporaryDirectory() as scratch:
        reference = scratch + "/reference"
        started = time.time()
        job = launch(options.launcher, reference, options.plan[0])
        if job.wait() != 0:
            sys.exit(job.stderr.read())
        expected, whole_s = losses_of(reference), time.time() - started
        while kills < options.kills:
            jobs += 1
            run, step = f"{scratch}/run-{jobs}", 0
            while True:
                job = launch(options.launcher, run, draw.choice(options.plan))
                wants_kill = kills < options.kills
                try:
                    job.wait(timeout=draw.uniform(0.2, 1.0) * whole_s if wants_kill else 600)
                except subprocess.TimeoutExpired:
                    os.kill(job.pid, signal.SIGKILL)
                    job.wait()
                    kills += 1
                    if step_of_latest(run) < step:
                        sys.exit(f"job {jobs}: latest went from step {step} to {step_of_latest(run)}")
                    step = step_of_latest(run)
                    time.sleep(0.5)  # the second process of the launcher ends the ranks
                    continue
                if job.returncode != 0:
                    sys.exit(f"job {jobs}, from step {step}: {job.stderr.read()}")
                break
            found = losses_of(run)
            if sorted(found) != sorted(expected):
                sys.exit(f"job {jobs}: steps {sorted(found)}")
            worst = max(abs(found[s] - expected[s]) / expected[s] for s in expected)
            if worst > TOLERANCE:
                sys.exit(f"job {jobs}: a loss differs by {worst:.1e}")
            print(f"job {jobs} done, {kills} kills so far, largest difference of a loss {worst:.1e}", flush=True)
    print(f"{kills} kills, {jobs} jobs: each went on from its last whole checkpoint")


if __name__ == "__main__":
    main()
