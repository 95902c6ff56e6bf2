"""Training runs that the benchmarks under scripts/ time: smp's, and the same GPT under PyTorch."""
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TORCH = "2.11.0"
PEERS = ("ddp", "ddp-compiled", "fsdp2", "fsdp2-compiled")

JOB = """\
model: {{name: bench, family: gpt2, num_layers: {layers}, hidden_size: {hidden}, num_heads: {heads},
        vocab_size: 256, max_positions: {sequence}, tied_embeddings: false}}
cluster: {{name: this host, hosts: 1, processes_per_host: {ranks}, device: cpu,
          memory_per_process: 8GiB, fp32_flops_per_s: 100G, memory_bytes_per_s: 10G,
          intra_host_bytes_per_s: 2G, intra_host_latency_s: 0.00005}}
training: {{sequence_length: {sequence}, micro_batch: {micro_batch}, microbatches: 1,
           global_batch: {global_batch}, steps: {steps}, precision: fp32,
           data: {{path: python-stdlib, suffixes: [.py]}}}}
parallel: {{pipeline_parallel_degree: 1, tensor_parallel_degree: 1, sharding: {sharding},
           sharded_data_parallel_degree: {shard}}}
"""


@dataclasses.dataclass(frozen=True)
class Gpt:
    """A data-parallel job; micro_batch counts the sequences of one rank in a step."""
    layers: int = 4
    hidden: int = 256
    heads: int = 4
    sequence: int = 256
    micro_batch: int = 8
    ranks: int = 2
    steps: int = 24
    sharding: str = "none"

    def threads(self):
        return max(1, len(os.sched_getaffinity(0)) // self.ranks)

    def tokens(self):
        return self.ranks * self.micro_batch * self.sequence

    def job(self):
        return JOB.format(**dataclasses.asdict(self), global_batch=self.micro_batch * self.ranks,
                          shard=1 if self.sharding == "none" else self.ranks)

    def __str__(self):
        return (f"GPT {self.layers} x {self.hidden}, sequence {self.sequence}, {self.micro_batch} "
                f"sequences a rank, {self.ranks} ranks x {self.threads()} threads")


# What the benchmarks of speed compare.
SIZES = {
    "small": Gpt(layers=4, hidden=256, heads=4, sequence=256, micro_batch=8),
    "large": Gpt(layers=8, hidden=512, heads=8, sequence=512, micro_batch=2),
}


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with exit code {done.returncode}:\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout


def add_programs(parser):
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin",
                        help="folder of smp-plan, smp-launch and smp-worker")


def check_programs(folder):
    if not (folder / "smp-worker").exists():
        sys.exit(f"no smp-worker in {folder}: build first (scripts/build release)")


def with_threads(gpt):
    return {**os.environ, "OMP_NUM_THREADS": str(gpt.threads())}


def later_median(seconds):
    """Of the steps after the warm-up."""
    return statistics.median(seconds[len(seconds) // 3:])


def run_smp(programs, gpt, folder, name):
    """Median seconds of a step, and the fullest rank's counted peak in bytes."""
    plan = folder / f"{name}.yaml"
    job = folder / f"job-{name}.yaml"
    job.write_text(gpt.job())
    run([programs / "smp-plan", job, "-o", plan])
    run_dir = folder / name
    run([programs / "smp-launch", "--run-dir", run_dir, plan], env=with_threads(gpt))
    steps = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    report = json.loads((run_dir / "report.json").read_text())
    peak = max(rank["measured_peak_bytes"] for rank in report["ranks"])
    return later_median([step["step_s"] for step in steps]), peak


def peers_python():
    """The Python of SMP_PEERS_PYTHON, or of a virtual environment that is made in .deps/peers."""
    chosen = os.environ.get("SMP_PEERS_PYTHON")
    if chosen:
        python = chosen
    else:
        folder = ROOT / ".deps" / "peers"
        python = folder / "bin" / "python"
        ready = folder / "ready"
        if not ready.exists():
            print(f"making {folder} (once; Python's torch needs all its CUDA wheels, 5 GB)",
                  flush=True)
            run([sys.executable, "-m", "venv", folder])
            run([python, "-m", "pip", "install", "--quiet", f"torch=={TORCH}", "numpy"])
            ready.touch()
    version = run([python, "-c", "import torch; print(torch.__version__)"]).strip()
    if version.split("+")[0] != TORCH:
        sys.exit(f"{python} has torch {version}; smp is built with {TORCH}")
    return str(python)


def torch_packages(build=ROOT / "build" / "release"):
    """Where the backend of torch.distributed is that was built for peers_python()."""
    packages = build / "python"
    if not (packages / "smp_torch" / "_backend.so").exists():
        sys.exit(f"no {packages}/smp_torch/_backend.so: SMP_PEERS_PYTHON={peers_python()} "
                 "scripts/build release smp_torch")
    return packages


def run_peer(python, mode, gpt):
    """Median seconds of a step of one of PEERS."""
    shape = [f"--{name.replace('_', '-')}={getattr(gpt, name)}"
             for name in ("layers", "hidden", "heads", "sequence", "micro_batch", "steps")]
    out = run([python, "-m", "torch.distributed.run", "--standalone",
               f"--nproc-per-node={gpt.ranks}", ROOT / "tests/bench/train_peer.py", mode, *shape,
               f"--threads={gpt.threads()}"], env=with_threads(gpt))
    return later_median(json.loads(out.splitlines()[-1])["seconds"])
