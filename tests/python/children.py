#!/usr/bin/env python3
"""One rank: what it forks ends as Python programs do, is refused calls, and the groups go on."""
import multiprocessing
import os
import re
import signal
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

import smp_torch

hosts = int(os.environ["TEST_HOSTS"])
if hosts > 1:
    ranks_here = int(os.environ["WORLD_SIZE"]) // hosts
    os.environ["SMP_HOST_IDENTITY"] = f"host {int(os.environ['RANK']) // ranks_here}"
dist.init_process_group("smp")
rank, size = dist.get_rank(), dist.get_world_size()
pair = dist.new_group([0, 1])
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
shared = backend.allocate_tensor(100000, dtype=torch.float32, device=torch.device("cpu"))
REFUSAL = (rf"smp: abort in process group \w+: this process was forked from rank {rank}: "
           "a child process cannot use the rank's groups")


def sums():
    for tensor in (torch.empty(3), torch.empty(100000), shared):
        for group in (None, pair):
            tensor.fill_(rank + 1)
            dist.all_reduce(tensor, group=group)
            assert tensor[-1] == size * (size + 1) / 2, tensor


def refused(call):
    try:
        call()
    except dist.DistBackendError as error:
        assert re.search(REFUSAL, str(error)), f"said: {error}"
        return
    raise AssertionError("a forked process was let in")


def falls_out():
    pass


def destroys():
    dist.destroy_process_group(pair)
    dist.destroy_process_group()


def fails():
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    raise RuntimeError("the reader is broken")


def calls():
    one = torch.ones(1)
    for group in (None, pair):
        refused(lambda: dist.all_reduce(one, group=group))
        refused(lambda: dist.all_gather_object([None] * size, "x", group=group))
        refused(lambda: dist.barrier(group=group))
    refused(lambda: dist.send(one, 1 - rank))
    refused(lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, one, 1 - rank)]))
    refused(lambda: backend.allocate_tensor(1, dtype=torch.float32, device=torch.device("cpu")))
    refused(backend.abort)
    refused(smp_torch.get_error)
    refused(smp_torch.shrink)
    refused(under_way.wait)
    refused(under_way.is_completed)
    backend.shutdown()
    assert shared[0] == size * (size + 1) / 2  # what is shared can be read


def works(out):
    out.put(float(shared[0]))


# Each ends by the whole of Python's own end, under way beside it a call whose thread is not there.
for ends, code in ((falls_out, 0), (destroys, 0), (fails, 1), (calls, 0)):
    sums()
    message = torch.zeros(1)
    under_way = dist.irecv(message, 1 - rank)
    future = under_way.get_future()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        ends()
        sys.exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == code, (ends.__name__, status)
    dist.barrier()
    dist.send(torch.ones(1), 1 - rank)
    future.wait()
    assert message.item() == 1

fork = multiprocessing.get_context("fork")
queue = fork.Queue()
process = fork.Process(target=works, args=(queue,))
process.start()
sums()
assert queue.get(timeout=60) > 0
process.join()
assert process.exitcode == 0
with fork.Pool(2) as pool:
    assert pool.map(abs, [-1, 2]) == [1, 2]
    sums()
data = TensorDataset(torch.arange(12.0))
for _ in range(2):
    for (batch,) in DataLoader(data, batch_size=3, num_workers=2, multiprocessing_context=fork):
        total = batch.sum()
        dist.all_reduce(total)
        assert total == size * batch.sum()
sums()
dist.destroy_process_group()
print("children: they end, and the groups go on")
