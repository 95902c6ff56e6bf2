#!/usr/bin/env python3
"""One rank of torch's gloo for scripts/bench-between-hosts: times fp32 collectives as smp-bench does (the slowest
rank, the median of the samples) and writes {"all_reduce": {"4096": seconds}} to a file.

  smp-launch --hosts ... -- python gloo_between_hosts.py OUT BYTES,...
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

from samples import calls_of_a_sample, let_settle

SAMPLES = 7
VALUE = 0.01  # about as smp-bench's: not zeros
out, sizes = sys.argv[1], [int(word) for word in sys.argv[2].split(",")]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


def slowest(seconds):
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


def seconds_of(calls, call):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return slowest(time.perf_counter() - start)


let_settle(slowest)
results = {"all_reduce": {}, "all_gather": {}, "reduce_scatter": {}}
for size in sizes:
    whole, part = torch.full((size // 4,), VALUE), torch.full((size // 4 // ranks,), VALUE)
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
    }
    for op, call in calls.items():
        call()
        batch = calls_of_a_sample(lambda calls, call=call: seconds_of(calls, call))
        results[op][size] = statistics.median(seconds_of(batch, call) / batch for _ in range(SAMPLES))
if rank == 0:
    with open(out, "w") as file:
        json.dump(results, file)
dist.barrier()
dist.destroy_process_group()
