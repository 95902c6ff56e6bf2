#!/usr/bin/env python3
"""Trains on several hosts, made of namespaces (scripts/namespace-hosts), and on one: the losses agree, the
bytes sent are those of the plan, and a lost rank or host ends the job with its name. Prints what it measures;
returns 77 where such hosts may not be made.

  train_on_hosts.py SMP_PLAN SMP_LAUNCH SOURCE_DIR
  train_on_hosts.py SMP_PLAN SMP_LAUNCH SOURCE_DIR --eight
  train_on_hosts.py SMP_PLAN SMP_LAUNCH SOURCE_DIR --grid
  train_on_hosts.py SMP_PLAN SMP_LAUNCH SOURCE_DIR --quickstart STEPS

With --eight it trains on 8 hosts alone. With --grid on 2, 3, 4 and 8 hosts with 1, 2, 3 and 4 ranks each: ZeRO-3, with an
even number of ranks on each x tensor, and of hosts x pipeline. With --quickstart it trains the quickstart's job alone, for so
many steps on 4 hosts, in the layout that smp-plan chooses for them and as ZeRO-3 x pipeline, a rank killed in the middle of
each: the losses of an undisturbed run to the bit, and of one host in the same layout.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

os.environ["SMP_NO_MEASURE"] = "1"  # layouts do not depend on this host

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from checks import Checks
from namespace_hosts import Hosts
from trace_rules import problems_of

STEPS = 6
# hosts, ranks of each, the layout, and how far losses may lie from one host's, relative: sums run in rank
# order inside a host and then over hosts, so with one rank to a host not at all.
CASES = [
    (2, 1, {}, 0),
    (4, 1, {"sharded_data_parallel_degree": 4, "sharding": "parameters"}, 0),
    (2, 2, {}, 1e-6),
    (3, 2, {"sharded_data_parallel_degree": 2, "sharding": "optimizer_state"}, 1e-6),
    (4, 2, {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "sharded_data_parallel_degree": 2,
            "sharding": "parameters"}, 1e-6),
]
EIGHT = [
    (8, 1, {"pipeline_parallel_degree": 2, "sharded_data_parallel_degree": 4, "sharding": "parameters"}, 0),
    (8, 2, {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "sharded_data_parallel_degree": 4,
            "sharding": "parameters"}, 1e-6),
]


def grid():
    for hosts in (2, 3, 4, 8):
        for per_host in (1, 2, 3, 4):
            tensor = 2 - per_host % 2
            pipeline = 2 if hosts % 2 == 0 and per_host != 3 else 1  # two stages do not go into 3 ranks
            layout = {"tensor_parallel_degree": tensor, "pipeline_parallel_degree": pipeline,
                      "sharded_data_parallel_degree": hosts * per_host // tensor // pipeline}
            if layout["sharded_data_parallel_degree"] > 1:
                layout["sharding"] = "parameters"
            yield hosts, per_host, layout, 0 if per_host == 1 else 1e-6


ZERO3_PIPELINE = {"pipeline_parallel_degree": 2, "sharded_data_parallel_degree": 2, "sharding": "parameters"}


class Test(Checks):
    def __init__(self, plan, launch, source, cases):
        self.plan, self.launch, self.source, self.cases = plan, launch, pathlib.Path(source), cases
        self.hosts = Hosts(self.source / "scripts/namespace-hosts", max(case[0] for case in cases))
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="smp-train-on-hosts-"))

    def make_plan(self, name, hosts, per_host, layout, steps=STEPS, more=None, job="tests/faults/job.yaml"):
        plan = self.folder / f"{name}.yaml"
        whole = {"tensor_parallel_degree": 1, "pipeline_parallel_degree": 1, "sharded_data_parallel_degree": 1}
        pins = {f"parallel.{key}": value for key, value in (whole | layout).items()}
        pins |= {"cluster.hosts": hosts, "cluster.processes_per_host": per_host, "training.steps": steps}
        pins |= more or {}
        command = [self.plan, str(self.source / job), "-o", str(plan)]
        for key, value in pins.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        return plan

    def command(self, plan, run, hosts=0):
        named = ["--hosts", f"h[1-{hosts}]" if hosts > 1 else "h1",
                 "--ssh-args", f"-F {self.hosts.folder}/ssh_config"] if hosts else []
        return [self.launch, *named, "--run-dir", str(run), str(plan)]

    def train(self, plan, run, hosts=0):
        start = time.monotonic()
        done = subprocess.run(self.command(plan, run, hosts), capture_output=True, text=True, timeout=1200)
        if done.returncode != 0:
            raise RuntimeError(f"{done.stdout}\n{done.stderr}")
        lines = (run / "metrics.jsonl").read_text().splitlines()
        report = json.loads((run / "report.json").read_text())
        return [json.loads(line)["loss"] for line in lines], report, done.stdout, time.monotonic() - start

    def case(self, number, hosts, per_host, layout, tolerance):
        what = f"{hosts} hosts x {per_host}, " + (", ".join(f"{k} {v}" for k, v in layout.items()) or "replicas")
        one = self.make_plan(f"{number}-one", 1, hosts * per_host, layout)
        many = self.make_plan(f"{number}-many", hosts, per_host, layout)
        expected, _, _, _ = self.train(one, self.folder / f"{number}-one.run")
        losses, report, said, seconds = self.train(many, self.folder / f"{number}-many.run", hosts)
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
        self.check(f"{what}: losses differ from one host's by {worst:.1e} at most ({seconds:.1f} s)",
                   len(losses) == STEPS and worst <= tolerance, f"{losses}\n{expected}")
        wire = [row for rank in report["ranks"] for row in rank["wire"]]
        wrong = [row for row in wire if row["measured_wire_bytes"] != row["predicted_wire_bytes"]]
        self.check("... and sent what the plan says", wire != [] and wrong == [], str(wrong))
        memory = [rank for rank in report["ranks"]
                  if rank["measured_bytes_by_category"]["communication"] !=
                  rank["predicted_bytes_by_category"]["communication"]]
        self.check("... with the communication memory of the plan", memory == [], str(memory[:1]))
        self.check("... over a network that it names", "between hosts: provider " in said, said)

    def trace(self):
        """Two hosts of one clock in truth: what is estimated of the other's is no further off than it says."""
        plan = self.make_plan("traced", 2, 2, ZERO3_PIPELINE, more={"training.trace.steps": "[2, 3]"})
        run = self.folder / "traced.run"
        _, _, said, _ = self.train(plan, run, 2)
        text = (run / "trace.json").read_text()
        wrong = problems_of(text)
        events = [] if wrong else json.loads(text)["traceEvents"]
        ranks = {event["pid"] for event in events if event["ph"] == "X"}
        arrows = [event for event in events if event["ph"] == "s"]
        self.check(f"2 hosts x 2, traced: one file of {len(ranks)} ranks, {len(arrows)} messages",
                   wrong == [] and ranks == {0, 1, 2, 3} and arrows and "the timeline of steps 2 to 3 is in" in said,
                   f"{wrong}\n{said}")
        labels = {event["pid"]: event["args"]["labels"] for event in events if event["name"] == "process_labels"}
        clocks = {rank: [float(number) for number in re.fullmatch(
            r"clock offset ([-+][0-9.]+) us, uncertainty ([0-9.]+) us", label).groups()] for rank, label in labels.items()}
        self.check(f"... with the other host's clock: {labels.get(2, 'none')}",
                   sorted(clocks) == [2, 3] and clocks[2] == clocks[3] and
                   all(abs(offset) <= uncertainty + 0.1 for offset, uncertainty in clocks.values()), str(labels))

    def fault(self, what, break_it, expected):
        plan = self.make_plan(what.replace(" ", "-"), 2, 2, {}, steps=100000)
        run = self.folder / (what.replace(" ", "-") + ".run")
        program = subprocess.Popen(self.command(plan, run, 2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        metrics = run / "metrics.jsonl"
        until = time.monotonic() + 200
        while time.monotonic() < until and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.05)
        start = time.monotonic()
        break_it()
        _, errors = program.communicate(timeout=200)
        seconds = time.monotonic() - start
        self.check(f"{what}: the job ends after {seconds:.1f} s and says why",
                   program.returncode != 0 and seconds < 10 and re.search(expected, errors), errors)

    def launch_with_a_death(self, step):
        """An smp-launch of its own whose rank 1 dies at the start of that step, but in no run that goes on from a
        checkpoint: the worker beside it says so."""
        folder = self.folder / f"death-at-{step}"
        folder.mkdir(exist_ok=True)
        shutil.copy(self.launch, folder / "smp-launch")
        worker = pathlib.Path(self.launch).resolve().parent / "smp-worker"
        (folder / "smp-worker").write_text(f"#!/bin/sh\ntest $SMP_RESUME || export SMP_FAULT=rank=1,step={step},kind=kill\n"
                                           f"exec {worker}\n")
        (folder / "smp-worker").chmod(0o755)
        return str(folder / "smp-launch")

    def restart(self, what, plan, kill_at, one_host=None):
        """On 4 hosts, a rank killed behind two checkpoints, for they are written in the background and the second began
        when the first was whole: the losses of an undisturbed run, and of that plan of one host, whose sums have the same
        order where a host has one rank."""
        name = what.replace(" ", "-")
        expected, _, _, _ = self.train(plan, self.folder / f"{name}-undisturbed.run", 4)
        if one_host is not None:
            losses, _, _, seconds = self.train(one_host, self.folder / f"{name}-one-host.run")
            self.check(f"{what} on 4 hosts: the same {len(losses)} losses as on one ({seconds:.1f} s there)",
                       losses == expected, f"{expected}\n{losses}")
        run = self.folder / f"{name}-disturbed.run"
        done = subprocess.run([self.launch_with_a_death(kill_at), *self.command(plan, run, 4)[1:-1], "--max-restarts",
                               "1", "--restart-pause", "100ms", str(plan)], capture_output=True, text=True, timeout=1200)
        losses = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        told = re.search("restart 1 of 1, from step-[0-9]+", done.stderr)
        self.check(f"{what} on 4 hosts, a killed rank: {told[0] if told else 'no restart'}, the same {len(losses)} "
                   f"losses, {losses[0]:.3f} -> {losses[-1]:.3f}",
                   done.returncode == 0 and "was killed by SIGKILL" in done.stderr and told and losses == expected,
                   done.stderr + f"{losses}\n{expected}")

    def restart_sharded_pipeline(self):
        plan = self.make_plan("restart", 4, 1, ZERO3_PIPELINE, 24, {"training.checkpoint.every_steps": 8})
        self.restart("ZeRO-3 x pipeline", plan, 20)

    def quickstart(self, steps):
        auto = {f"{name}_degree": "auto" for name in ("tensor_parallel", "pipeline_parallel", "sharded_data_parallel")}
        for what, layout in (("quickstart", auto), ("quickstart as ZeRO-3 x pipeline", ZERO3_PIPELINE)):
            name, job = what.replace(" ", "-"), "configs/jobs/quickstart.yaml"
            more = {"training.checkpoint.every_steps": steps // 4}
            plan = self.make_plan(name, 4, 1, layout, steps, more, job)
            # What is best on one host need not be on four: the degrees that were chosen for these.
            layout, micro_batch = self.chosen(plan)
            one = self.make_plan(f"{name}-one-host", 1, 4, layout, steps, more | {"training.micro_batch": micro_batch}, job)
            self.restart(what, plan, steps * 5 // 8, one)

    @staticmethod
    def chosen(plan):
        """The layout of a plan, as the pins of make_plan, and its micro batch."""
        text = plan.read_text()
        keys = ("tensor_parallel_degree", "pipeline_parallel_degree", "sharded_data_parallel_degree", "sharding",
                "micro_batch")
        values = {key: re.search(rf"^ +{key}: (\S+)", text, re.M)[1] for key in keys}
        return values, values.pop("micro_batch")

    def workers_of(self, host):
        return [pid for pid, name in self.hosts.pids(host) if name == "smp-worker"]

    def kill_a_rank(self):
        os.kill(self.workers_of("h2")[0], signal.SIGKILL)

    def signal_host(self, host, number):
        for pid, _ in self.hosts.pids(host):
            with contextlib.suppress(ProcessLookupError):  # one that goes on may have ended another
                os.kill(pid, number)

    def train_all(self):
        for number, case in enumerate(self.cases):
            self.case(number, *case)

    def all(self):
        self.train_all()
        self.trace()
        self.restart_sharded_pipeline()
        self.fault("a killed rank", self.kill_a_rank, "SIGKILL")
        lost = r"host h2 was lost|host h2 \(.*has sent nothing for"
        self.fault("a cut network", lambda: self.hosts.tell("cut", "h2"), lost)
        self.hosts.tell("join", "h2")
        self.fault("a stopped host", lambda: self.signal_host("h2", signal.SIGSTOP), lost)
        self.signal_host("h2", signal.SIGCONT)
        self.fault("a host without power", lambda: self.hosts.tell("off", "h2"), lost)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    parser.add_argument("launch", type=os.path.abspath)
    parser.add_argument("source")
    parser.add_argument("--eight", action="store_true")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--quickstart", type=int, metavar="STEPS")
    options = parser.parse_args()
    test = Test(options.plan, options.launch, options.source, EIGHT if options.eight else list(grid()) if options.grid else CASES)
    try:
        if options.eight or options.grid:
            test.train_all()
        elif options.quickstart:
            test.quickstart(options.quickstart)
        else:
            test.all()
    finally:
        test.hosts.down()
    subprocess.run(["rm", "-rf", str(test.folder)], check=True)
    return 1 if test.failed else 0


sys.exit(main())
