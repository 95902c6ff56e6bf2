"""One rank's program, or the only one's: trains a small net with DistributedDataParallel over gloo, each rank on
its share of every batch; rank 0 prints the hosts, and the mean loss of each step in full."""
import gc
import os
import socket

import torch
import torch.distributed as dist

STEPS, BATCH = 5, 24
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def say(*words):
    if rank == 0:
        print(*words, flush=True)


def train():
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).double()
    batches = torch.randn(STEPS, BATCH, 16, dtype=torch.float64)
    targets = torch.randn(STEPS, BATCH, 4, dtype=torch.float64)
    if world > 1:
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    mine = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    for batch, target in zip(batches, targets):
        loss = torch.nn.functional.mse_loss(net(batch[mine]), target[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if world > 1:
            dist.all_reduce(mean)
            mean /= world
        say("loss", float(mean).hex())


torch.set_num_threads(1)
if world == 1:
    train()
else:
    dist.init_process_group("gloo")  # where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT lead
    names = [None] * world
    dist.all_gather_object(names, socket.gethostname())
    say("hosts", *names)
    train()
    gc.collect()  # a net that still holds the group keeps its threads, and Python then ends by SIGABRT at times
    dist.destroy_process_group()
