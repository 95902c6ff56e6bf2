#!/usr/bin/env python3
"""One rank of four: ranks end without a word, also the one that torch's store is with, and the others go on in
the same processes."""
import os

import torch
import torch.distributed as dist

import smp_torch


def until_it_fails():
    try:
        while True:
            dist.all_reduce(torch.ones(1000))
    except dist.DistBackendError as error:
        return str(error)


def leave_without(rank):
    """The rank ends, as a process that is killed does; the others go on. Returns who they were."""
    dist.barrier()
    if dist.get_rank() == rank:
        os._exit(0)  # nothing of ours runs, and the launcher takes it for a good end
    text = until_it_fails()
    assert f"rank {rank}" in text, text
    return smp_torch.shrink()


hosts = int(os.environ["TEST_HOSTS"])
if hosts > 1:
    os.environ["SMP_HOST_IDENTITY"] = f"host {int(os.environ['RANK']) * hosts // 4}"
dist.init_process_group("smp")
first = dist.get_rank()
held = torch.full((3,), float(first))

assert leave_without(2) == [0, 1, 3]
assert dist.get_world_size() == 3 and dist.get_rank() == [0, 1, 3].index(first)
dist.all_reduce(held)
assert held.tolist() == [4.0] * 3, held
pair = dist.new_group([1, 2])
if dist.get_rank() > 0:
    dist.barrier(pair)

# The first rank keeps the store.
assert leave_without(0) == [1, 2]
assert dist.get_world_size() == 2 and dist.get_rank() == [1, 3].index(first)
everybody = [None, None]
dist.all_gather_object(everybody, first)
assert everybody == [1, 3], everybody
dist.destroy_process_group()
print(f"rank {first}: as it should be")
