#!/usr/bin/env python3
"""Breaks real training runs in chosen ways and checks how they end.

    run_faults.py --bin build/release/bin --runs 20 --seed 1

Each run starts job.yaml in one of the layouts below and lets one random rank, at the start of one random step, be
killed, crash, exit, throw, or stop calling. Then
  - smp-launch ends within 2 s of the fault (of the time-out, for a rank that has stopped),
  - names that rank and what happened to it, and returns the code that this calls for,
  - and leaves no process, no shared memory, no socket.
A run that saves checkpoints is then resumed, and has to come to its last step.
"""
import argparse
import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

# What smp-plan is told beside job.yaml, on 4 ranks.
LAYOUTS = {
    "t2p2": ["tensor_parallel_degree=2", "pipeline_parallel_degree=2"],
    "p2d2": ["pipeline_parallel_degree=2", "tensor_parallel_degree=1"],
    "t2d2": ["pipeline_parallel_degree=1", "tensor_parallel_degree=2"],
    "d4": ["pipeline_parallel_degree=1", "tensor_parallel_degree=1"],
    "zero1": ["pipeline_parallel_degree=1", "tensor_parallel_degree=1", "shard_optimizer_state=true"],
    "zero2": ["pipeline_parallel_degree=1", "tensor_parallel_degree=1", "sharding=gradients",
              "sharded_data_parallel_degree=4"],
    "zero3": ["pipeline_parallel_degree=1", "tensor_parallel_degree=1", "sharding=parameters",
              "sharded_data_parallel_degree=4"],
    "hybrid": ["pipeline_parallel_degree=1", "tensor_parallel_degree=1", "sharding=parameters",
               "sharded_data_parallel_degree=2"],
    "p2-zero3": ["pipeline_parallel_degree=2", "tensor_parallel_degree=1", "sharding=parameters",
                 "sharded_data_parallel_degree=2"],
    "virtual": ["pipeline_parallel_degree=2", "tensor_parallel_degree=2", "pipeline=virtual",
                "virtual_pipeline_degree=2"],
    "zb_h1": ["pipeline_parallel_degree=4", "tensor_parallel_degree=1", "pipeline=zb_h1"],
    "zb_v": ["pipeline_parallel_degree=2", "tensor_parallel_degree=2", "pipeline=zb_v"],
    "offload": ["pipeline_parallel_degree=2", "tensor_parallel_degree=1", "recompute=full", "offload_activations=true"],
    "resumed": ["pipeline_parallel_degree=2", "tensor_parallel_degree=1", "shard_optimizer_state=true"],
    "resumed-zero3": ["pipeline_parallel_degree=1", "tensor_parallel_degree=1", "sharding=parameters",
                      "sharded_data_parallel_degree=4"],
}
RANKS = 4
CHECKPOINT_EVERY = 7  # steps, of the runs that are resumed

PR_SET_CHILD_SUBREAPER = 36
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.yaml")
COMM_TIMEOUT_S = 20.0  # longer than a busy machine keeps a rank waiting
STOP_TIMEOUT_S = 3.0  # of runs that wait for its end
HANG_S = 60.0

# kind: (exit code; words of the report)
KINDS = {
    "exit3": (3, "ended with exit code 3"),
    "exception": (1, "ended with exit code 1"),
    "segv": (139, "was killed by SIGSEGV"),
    "kill": (137, "was killed by SIGKILL"),
    "stop": (124, "stopped responding"),
}


def children():
    """Processes whose parent we are: being a subreaper, that is whatever a launcher has left."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        if int(text[text.rindex(")") + 1:].split()[1]) == os.getpid():
            found.append(f"{name} {text[text.index('('):text.rindex(')') + 1]}")
    return found


def leftovers(job_id, before):
    left = [f"process {child}" for child in children()]
    left += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")
             if job_id in name or (name.startswith("smp") and name not in before)]
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        left += [f"socket {line.split()[-1]}" for line in file if job_id in line]
    return left


def steps_done(run_dir):
    try:
        with open(f"{run_dir}/metrics.jsonl", encoding="utf-8") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def make_plan(folder, binaries, layout):
    """Plans job.yaml in this layout; the plan's path."""
    plan = f"{folder}/{layout}.yaml"
    if not os.path.exists(plan):
        command = [f"{binaries}/smp-plan", JOB, "-o", plan, "--set", "model.num_layers=4"]
        for pin in LAYOUTS[layout]:
            command += ["--set", f"parallel.{pin}"]
        if layout.startswith("resumed"):
            command += ["--set", f"training.checkpoint.every_steps={CHECKPOINT_EVERY}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return plan


def resume(launcher, plan, run_dir, step):
    """Goes on behind the last checkpoint before `step`; returns what is wrong."""
    due = (step - 1) // CHECKPOINT_EVERY * CHECKPOINT_EVERY
    # Saves go on in the background: of the last one nothing is certain, but it began when the one before was whole.
    possible = {f"step-{saved:08d}" for saved in (due, due - CHECKPOINT_EVERY) if saved > 0}
    latest = None
    if os.path.exists(f"{run_dir}/checkpoints/latest"):
        with open(f"{run_dir}/checkpoints/latest", encoding="utf-8") as file:
            latest = file.read().strip()
    if latest not in possible and (latest or len(possible) > 1):
        return [f"the last checkpoint is {latest}, of {sorted(possible)}"]
    before = set(os.listdir("/dev/shm"))
    ended = subprocess.run([launcher, "--resume", "--run-dir", run_dir, "--show-ranks", "none", plan],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False)
    if latest is None:
        refused = ended.returncode == 3 and "the folder has no checkpoint" in ended.stderr
        return [] if refused else [f"resumed from nothing: exit code {ended.returncode}\n{ended.stderr}"]
    wrong = []
    if ended.returncode != 0:
        wrong.append(f"resumed: exit code {ended.returncode}\n{ended.stderr}")
    with open(f"{run_dir}/metrics.jsonl", encoding="utf-8") as file:
        steps = [json.loads(line)["step"] for line in file]
    if steps != list(range(1, len(steps) + 1)) or len(steps) < step:
        wrong.append(f"resumed: metrics.jsonl has the steps {steps}")
    wrong += [f"resumed: left behind: /dev/shm/{name}" for name in os.listdir("/dev/shm")
              if name.startswith("smp") and name not in before]
    return wrong + [f"resumed: left behind: process {child}" for child in children()]


def one_run(launcher, plan, rank, step, kind, folder, end_within):
    """Returns what is wrong, one line each, and how long the launcher took to end."""
    run_dir = f"{folder}/run"
    report = f"{folder}/report.json"
    before = set(os.listdir("/dev/shm"))
    timeout = STOP_TIMEOUT_S if kind == "stop" else COMM_TIMEOUT_S
    environment = dict(os.environ, SMP_FAULT=f"rank={rank},step={step},kind={kind}")
    process = subprocess.Popen(
        [launcher, "--run-dir", run_dir, "--report", report, "--show-ranks", "none",
         "--comm-timeout", f"{timeout}s", plan],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    try:
        _, errors = process.communicate(timeout=HANG_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        _, errors = process.communicate()
        return [f"smp-launch had not ended after {HANG_S:.0f} s:\n{errors}"], HANG_S
    ended = time.time()

    wrong = []
    expected_code, words = KINDS[kind]
    if f"smp-launch: rank {rank} {words}" not in errors:
        wrong.append(f"the report does not say 'rank {rank} {words}'")
    if kind == "exception" and f"injected exception on rank {rank} at step {step}" not in errors:
        wrong.append("the report does not quote the exception")
    if process.returncode != expected_code:
        wrong.append(f"exit code {process.returncode} instead of {expected_code}")

    with open(report, encoding="utf-8") as file:
        facts = json.load(file)
    if facts.get("cause", {}).get("rank") != rank:
        wrong.append(f"report.json blames {facts.get('cause')}")
    if kind == "stop":
        # The last thing that all ranks did together is the step before.
        fault_to_end = ended - os.stat(f"{run_dir}/metrics.jsonl").st_mtime - timeout
    else:
        fault_to_end = (facts["elapsed_ms"] - facts["ranks"][rank]["after_ms"]) / 1000
    if fault_to_end > end_within:
        wrong.append(f"ended {fault_to_end:.2f} s after the "
                     f"{'time-out' if kind == 'stop' else 'fault'}")
    if steps_done(run_dir) >= step:
        wrong.append(f"{steps_done(run_dir)} steps were done, the fault was at step {step}")
    with open(f"{run_dir}/plan.yaml", "rb") as copy, open(plan, "rb") as original:
        if copy.read() != original.read():
            wrong.append("plan.yaml in the run folder is not the plan")
    wrong += [f"left behind: {thing}" for thing in leftovers(facts["job_id"], before)]
    if not wrong and os.path.basename(plan).startswith("resumed"):
        wrong += resume(launcher, plan, run_dir, step)
    if wrong:
        wrong.append(errors)
    return wrong, fault_to_end


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of smp-plan, smp-launch and smp-worker")
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), choices=list(LAYOUTS))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--last-step", type=int, default=40, help="faults fall on steps 1 to this")
    parser.add_argument("--end-within", type=float, default=2.0, help="seconds from the fault to the end")
    arguments = parser.parse_args()

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    draw = random.Random(arguments.seed)
    kinds = list(KINDS)
    slowest = dict.fromkeys(kinds, 0.0)
    failed = 0
    layouts = []
    plans = tempfile.mkdtemp(prefix="smp-faults-plans-")
    for run in range(arguments.runs):
        kind = kinds[run % len(kinds)]
        rank = (run // len(kinds) + run % len(kinds)) % RANKS  # each kind on each rank
        step = draw.randrange(1, arguments.last_step + 1)
        # Each layout in turn, in another order each time.
        if not layouts:
            layouts = draw.sample(arguments.layouts, len(arguments.layouts))
        plan = make_plan(plans, arguments.bin, layouts.pop())
        folder = tempfile.mkdtemp(prefix="smp-faults-")
        wrong, seconds = one_run(f"{arguments.bin}/smp-launch", plan, rank, step, kind, folder,
                                 arguments.end_within)
        slowest[kind] = max(slowest[kind], seconds)
        name = f"run {run}: rank {rank}, step {step}, {kind}, {os.path.basename(plan)}"
        if wrong:
            failed += 1
            print(f"FAILED {name} (everything is in {folder})")
            print("\n".join("  " + line for text in wrong for line in text.splitlines()))
        else:
            print(f"ok {name}: {seconds * 1000:.0f} ms", flush=True)
            shutil.rmtree(folder)
    shutil.rmtree(plans)
    print(f"{arguments.runs - failed} of {arguments.runs} runs ended as they should; slowest end "
          "after the fault (stop: after the time-out): " +
          ", ".join(f"{kind} {seconds * 1000:.0f} ms" for kind, seconds in slowest.items()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
