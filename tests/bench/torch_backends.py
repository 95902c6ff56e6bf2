#!/usr/bin/env python3
"""One rank of scripts/bench-pytorch: the same calls and the same DDP steps on "smp" and on "gloo", in
turn. Rank 0 prints the medians as JSON: the slowest rank's seconds of a step, or by call and size of a call, of smp on
tensors in private memory ("staged") and on those of allocate_tensor ("direct"); "nothing" are those of
an all_reduce of 4 KiB on PyTorch's own backend "fake", which does nothing. With --device cuda tensors lie on GPUs, of
which several ranks may share one: no "direct" then, and each call or step lasts until the GPU has done all of it."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import smp_torch  # noqa: F401
from collectives_targets import OPS, SIZES
from samples import calls_of_a_sample, let_settle

# After calls of the other library, in which ranks sleep, the kernel leaves three of four on one of two CPUs for up to
# 0.1 s. So each library settles before its sample.
SAMPLES_TO_SETTLE = 5


def slowest(seconds):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, seconds)
    return [max(of_ranks) for of_ranks in zip(*every)]


def timed(call, times):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def private(device):
    return lambda count: torch.ones(count, device=device)


def symmetric(group):
    """Makes tensors that the group's ranks read in place."""
    backend = group._get_backend(torch.device("cpu"))
    return lambda count: backend.allocate_tensor(count, dtype=torch.float32, device=torch.device("cpu")).fill_(1)


def to_its_end(call, device):
    """With what it asks of the GPU."""
    def whole():
        call()
        torch.cuda.synchronize()
    return whole if device == "cuda" else call


def calls(name, bytes_each, group, tensor):
    size = dist.get_world_size()
    whole = tensor(bytes_each // 4 // size * size)
    part = tensor(whole.numel() // size)
    call = {"all_reduce": lambda: dist.all_reduce(whole, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group)}[name]
    return to_its_end(call, whole.device.type)


def bench_calls(options, groups):
    staged = private(options.device)
    tensors = {"staged": ("smp", staged), "direct": ("smp", symmetric(groups["smp"])), "gloo": ("gloo", staged)}
    if options.device == "cuda":
        del tensors["direct"]
    result = {way: {op: {} for op in OPS} for way in tensors}
    for op in OPS:
        for size in SIZES:
            call_of = {way: calls(op, size, groups[backend], tensor) for way, (backend, tensor) in tensors.items()}
            times = {way: calls_of_a_sample(lambda n, call=call: n * slowest([timed(call, n)])[0])
                     for way, call in call_of.items()}
            seconds = {way: [] for way in call_of}
            for _ in range(options.rounds + 1):
                for way, call in call_of.items():
                    timed(call, SAMPLES_TO_SETTLE * times[way])
                    seconds[way].append(timed(call, times[way]))
            for way, taken in seconds.items():
                result[way][op][size] = statistics.median(slowest(taken)[1:])
    return result


def steps(options, group):
    """Runs one step of DDP over the group."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[layer for _ in range(options.layers) for layer in
                                (torch.nn.Linear(options.width, options.width), torch.nn.GELU())])
    net = DistributedDataParallel(net.to(options.device), process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    batch = torch.randn(options.batch, options.width, device=options.device)

    def step():
        net(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return to_its_end(step, options.device)


def bench_steps(options, groups):
    step_on = {backend: steps(options, group) for backend, group in groups.items()}
    seconds = {backend: [] for backend in groups}
    for _ in range(3 * options.rounds + 2):
        for backend, step in step_on.items():
            seconds[backend].append(timed(step, 1))
    return {backend: statistics.median(slowest(taken)[2:]) for backend, taken in seconds.items()}


def bench_nothing(options):
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    call = calls("all_reduce", 4 << 10, dist.group.WORLD, private("cpu"))
    return statistics.median([timed(call, 2000) for _ in range(options.rounds + 1)][1:])


parser = argparse.ArgumentParser()
for option, value in {"rounds": 7, "layers": 8, "width": 1024, "batch": 16}.items():
    parser.add_argument(f"--{option}", type=int, default=value)
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
options = parser.parse_args()
torch.set_num_threads(1)
dist.init_process_group("gloo")
if options.device == "cuda":
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
groups = {"smp": dist.new_group(backend="smp"), "gloo": dist.group.WORLD}
let_settle(lambda seconds: slowest([seconds])[0])
result = {"calls": bench_calls(options, groups), "step": bench_steps(options, groups)}
rank = dist.get_rank()
dist.destroy_process_group()
if rank == 0:
    print(json.dumps(result | {"nothing": bench_nothing(options)}))
