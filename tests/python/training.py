#!/usr/bin/env python3
"""One rank: DDP, FSDP2 and DTensor of PyTorch, unmodified, train on "smp" as they do on "gloo":
on the CPU, or with SMP_TEST_DEVICE=cuda on GPUs, of which several ranks may share one."""
import collections
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.nn.parallel import DistributedDataParallel

import smp_torch  # noqa: F401

# How a model is trained: 50 steps of everything in a sweep.
Run = collections.namedtuple("Run", "dtype steps")
EXACT = Run(torch.float64, int(os.environ.get("SMP_TRAINING_STEPS", "5")))
USUAL = Run(torch.float32, 50)


def model(run):
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 33),
                               torch.nn.LayerNorm(33), torch.nn.Linear(33, 8)).to(device, run.dtype)


def train(run, net, same_batch=False):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
    generator = torch.Generator().manual_seed(0 if same_batch else rank)
    losses = []
    for _ in range(run.steps):
        batch = torch.randn(12, 16, generator=generator, dtype=run.dtype).to(device)
        loss = (net(batch) - batch[:, :8]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def ddp(run, **options):
    # Buckets of a few kilobytes: several are in flight at once.
    return train(run, DistributedDataParallel(model(run), bucket_cap_mb=0.01, **options))


def fsdp2(run, from_group=False):
    net = model(run)
    mesh = init_device_mesh(device, (size,))
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    if from_group:  # gathers and reductions in memory of the group: symmetric on smp
        net.set_allocate_memory_from_process_group_for_comm(True)
    return train(run, net)


def mixed(run):
    net = model(run)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32,
                                  output_dtype=run.dtype)
    fully_shard(net, mesh=init_device_mesh(device, (size,)), mp_policy=policy)
    return train(run, net)


def hybrid(run):
    net = model(run)
    mesh = init_device_mesh(device, (size // 2, 2), mesh_dim_names=("replica", "shard"))
    fully_shard(net, mesh=mesh)
    return train(run, net)


def tensor_parallel(run):
    net = parallelize_module(model(run), init_device_mesh(device, (size,)),
                             {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(run, net, same_batch=True)


def losses_of(run, on_smp):
    losses = {"DDP": ddp(run), "DDP, gradients as views": ddp(run, gradient_as_bucket_view=True),
              "FSDP2": fsdp2(run), "FSDP2 in bf16": mixed(run), "DTensor": tensor_parallel(run)}
    if device == "cpu":
        losses["FSDP2 in the group's memory"] = fsdp2(run, on_smp)
    if size % 2 == 0 and size > 2:
        losses["FSDP2 over a mesh of two axes"] = hybrid(run)
    return losses


def losses_on(backend):
    # One store for both: no other port is known to be free.
    dist.init_process_group(backend, store=dist.PrefixStore(backend, store), rank=rank, world_size=size)
    on_smp = backend == "smp"
    losses = {EXACT: losses_of(EXACT, on_smp),
              USUAL: losses_of(USUAL, on_smp) if EXACT.steps >= USUAL.steps else {"DDP": ddp(USUAL)}}
    dist.destroy_process_group()
    _clear_sharding_prop_cache()  # DTensor remembers meshes, whose groups are gone
    return losses


store, rank, size = next(dist.rendezvous("env://"))
device = os.environ.get("SMP_TEST_DEVICE", "cpu")
if device == "cuda":
    torch.cuda.set_device(rank % torch.cuda.device_count())
gloo, smp = losses_on("gloo"), losses_on("smp")
for run, ways in gloo.items():
    for name, theirs in ways.items():
        # Sums of two numbers are the same in any order; of bf16 they are rounded by each hop of gloo.
        limit = 0 if size == 2 else 2e-3 if "bf16" in name else {EXACT: 1e-12, USUAL: 1e-5}[run]
        worst = max(abs(a - b) / abs(b) for a, b in zip(smp[run][name], theirs))
        assert worst <= limit, (run, name, worst, smp[run][name], theirs)
        assert len(theirs) == run.steps and theirs[-1] < theirs[0], (run, name, theirs)
        if rank == 0 and run is USUAL:
            print(f"training: {name}, fp32, {run.steps} steps: {worst:.1e} from gloo's losses at most")
if rank == 0:
    print(f"training: {len(gloo[EXACT])} ways, {size} ranks: the losses of gloo")
