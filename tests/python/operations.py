#!/usr/bin/env python3
"""One rank: every operation of torch.distributed on "smp" gives what it gives on "gloo", which runs
side by side with it in this job. With SMP_TEST_DEVICE=cuda the tensors lie on GPUs, one for several ranks where
there are fewer, but those of gloo, which does not send or receive a GPU's."""
import os
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

import smp_torch  # noqa: F401

# What gloo reduces, and further types, whose bytes it moves here.
NUMBERS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64,
           torch.uint8, torch.int8]
MOVED = [*NUMBERS, torch.int16, torch.bool, torch.complex64]
SIZES = [1, 7, 5000]


def values(shape, dtype, seed=0):
    """Small whole numbers of this rank, whose sums and products every type holds exactly."""
    generator = torch.Generator().manual_seed(1000 * dist.get_rank() + seed)
    numbers = torch.randint(1, 4, shape, generator=generator, device="cpu")
    return numbers.to(torch.get_default_device(), dtype)


def known(tensor, group):
    """A tensor of a type that gloo does not know, as its bytes."""
    return tensor.view(torch.uint8) if group is gloo and tensor.dtype not in NUMBERS else tensor


def same(call, *, on_root=None):
    """`call(group)` returns tensors; on both groups they must be equal (on `on_root` alone)."""
    ours = call(smp)
    with torch.device("cpu"):
        theirs = call(gloo)
    if on_root is None or rank == on_root:
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs):
            assert mine.device.type == device and mine.dtype == other.dtype
            assert torch.equal(mine.cpu(), other), (mine, other)


def sum_on_gloo(tensor):
    total = tensor.cpu().clone()
    dist.all_reduce(total, group=gloo)
    return total


def reductions():
    ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    for dtype in NUMBERS:
        for op in ops:
            for count in SIZES:
                def all_reduce(group, shape=(count,)):
                    tensor = values(shape, dtype)
                    dist.all_reduce(tensor, op, group=group)
                    return [tensor]
                same(all_reduce)

                def reduce(group, shape=(count,)):
                    tensor = values(shape, dtype)
                    dist.reduce(tensor, size - 1, op, group=group)
                    return [tensor]
                same(reduce, on_root=size - 1)

    def scattered(group):
        out = torch.zeros(3, 5)
        dist.reduce_scatter(out, [values((3, 5), torch.float32, i) for i in range(size)], group=group)
        flat = torch.zeros(6)
        dist.reduce_scatter_tensor(flat, values((6 * size,), torch.float32), group=group)
        return [out, flat]
    same(scattered)

    average = values((9,), torch.float32)
    total = sum_on_gloo(average)
    dist.all_reduce(average, dist.ReduceOp.AVG, group=smp)
    assert torch.equal(average.cpu(), total / size)

    def turned(group):
        tensor = values((4, 6), torch.float32).t()
        dist.all_reduce(tensor, group=group)
        return [tensor]
    same(turned)

    tensor = torch.complex(values((5,), torch.float32), values((5,), torch.float32, 1))
    parts = sum_on_gloo(torch.view_as_real(tensor))
    dist.all_reduce(tensor, group=smp)
    assert torch.equal(torch.view_as_real(tensor).cpu(), parts)

    # Tensors that are conjugated, negated or turned when somebody reads them, which torch's functions
    # refuse or copy on their way here; programs in C++ may not.
    backend = smp._get_backend(torch.device("cpu"))
    whole = torch.complex(values((2, 3), torch.float32), values((2, 3), torch.float32, 1))
    total = whole.clone()
    dist.all_reduce(total, group=smp)
    for of in (lambda x: x.conj(), lambda x: x.conj().imag, lambda x: x.mH):
        tensor = of(whole.clone())
        backend.allreduce([tensor], dist.AllreduceOptions()).wait()
        assert torch.equal(tensor, of(total)), (tensor, total)
        backend.reduce([tensor], dist.ReduceOptions()).wait()
        assert rank > 0 or torch.equal(tensor, of(total) * size)

    either = torch.tensor([rank == 0, False, True])
    dist.all_reduce(either, group=smp)
    assert either.tolist() == [True, False, True]
    dist.all_reduce(torch.empty(0), group=smp)


def symmetric_memory():
    backend = smp._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu", 0))
    for count in (1, 50_000):
        mine = backend.allocate_tensor(count * size, dtype=torch.float32, device=torch.device("cpu"))
        mine.copy_(values((count * size,), torch.float32))
        total = mine.clone()
        part, expected = torch.zeros(2, count, device="cpu")
        dist.reduce_scatter_tensor(part, mine, group=smp)
        dist.reduce_scatter_tensor(expected, total, group=gloo)
        assert torch.equal(part, expected)
        dist.all_reduce(mine, group=smp)
        dist.all_reduce(total, group=gloo)
        assert torch.equal(mine, total)


def moves():
    for dtype in MOVED:
        for root in range(size):
            def broadcast(group):
                tensor = values((7, 3), dtype, root)
                dist.broadcast(known(tensor, group), root, group=group)
                return [tensor]
            same(broadcast)

            def gather(group):
                out = [torch.zeros(5, dtype=dtype) for _ in range(size)] if rank == root else None
                dist.gather(known(values((5,), dtype), group),
                            [known(part, group) for part in out] if out else None, root, group=group)
                return out or []
            same(gather)

            def scatter(group):
                out = torch.zeros(5, dtype=dtype)
                parts = [values((5,), dtype, i) for i in range(size)] if rank == root else None
                dist.scatter(known(out, group),
                             [known(part, group) for part in parts] if parts else None, root,
                             group=group)
                return [out]
            same(scatter)

        def all_gather(group):
            out = [torch.zeros(2, 3, dtype=dtype) for _ in range(size)]
            dist.all_gather([known(part, group) for part in out],
                            known(values((2, 3), dtype), group), group=group)
            return out
        same(all_gather)

    def flat(group):
        out = torch.zeros(size * 4, 3)
        dist.all_gather_into_tensor(out, values((4, 3), torch.float32), group=group)
        return [out]
    same(flat)

    def turned(group):
        out = [torch.zeros(3, 2).t() for _ in range(size)]
        dist.all_gather(out, values((2, 3), torch.float32), group=group)
        return out
    same(turned)

    def all_to_all(group):
        sizes = [[(i + j) % 3 for j in range(size)] for i in range(size)]  # from i to j
        to, of = [row[rank] for row in sizes], sizes[rank]
        out = torch.zeros(sum(to), 2)
        dist.all_to_all_single(out, values((sum(of), 2), torch.float32), to, of, group=group)
        even = torch.zeros(size)
        dist.all_to_all_single(even, values((size,), torch.float32), group=group)
        return [out, even]
    same(all_to_all)

    out = [torch.zeros(j + 1) for j in range(size)]
    dist.all_to_all(out, [torch.full((rank + 1,), float(rank)) for _ in range(size)], group=smp)
    assert [tensor.tolist() for tensor in out] == [[float(j)] * (j + 1) for j in range(size)]


def messages():
    def ring(group):
        out = torch.zeros(6)
        back = torch.zeros(3, dtype=torch.bool)
        seen = known(back, group)
        works = [dist.isend(values((6,), torch.float32), (rank + 1) % size, group=group),
                 dist.irecv(out, (rank - 1) % size, group=group)]
        for work in works:
            work.wait()
        flags = known(values((3,), torch.bool), group)
        batch = [dist.P2POp(dist.isend, flags, (rank - 1) % size, group, tag=7),
                 dist.P2POp(dist.irecv, seen, (rank + 1) % size, group, tag=7)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        return [out, back]
    same(ring)


def futures_and_coalescing():
    tensor = torch.full((4,), float(rank + 1))
    future = dist.all_reduce(tensor, group=smp, async_op=True).get_future()
    total = size * (size + 1) / 2
    assert future.then(lambda done: done.value()[0] * 2).wait().tolist() == [2 * total] * 4

    works = [dist.all_reduce(torch.ones(1000), group=smp, async_op=True) for _ in range(50)]
    assert all(work.wait() for work in reversed(works)) and works[0].is_completed()
    for _ in range(200):  # nobody waits for these: their memory lives as long as they need it
        dist.all_reduce(torch.ones(3000), group=smp, async_op=True)
    assert dist.all_reduce(torch.ones(1), group=smp, async_op=True).wait(timedelta(seconds=30))

    def coalesced(group):
        sums = [values((i + 1,), torch.float32, i) for i in range(4)]
        with dist._coalescing_manager(group=group):
            for part in sums:
                dist.all_reduce(part, group=group)
        return sums
    same(coalesced)
    whole, part = [torch.zeros(size * 2), torch.zeros(size)], [torch.zeros(2), torch.zeros(1)]
    with dist._coalescing_manager(group=smp, async_ops=True) as pending:
        for out, mine in zip(whole, part):
            dist.all_gather_into_tensor(out, mine + rank, group=smp)
    pending.wait()
    assert whole[1].tolist() == list(range(size))
    with dist._coalescing_manager(group=smp, async_ops=True) as pending:
        for out, mine in zip(part, whole):
            dist.reduce_scatter_tensor(out, mine, group=smp)
    pending.wait()
    assert part[1].tolist() == [rank * size]


def coalescing_left_by_an_exception():
    cpu = torch.device("cpu")
    smp._start_coalescing(cpu)  # and nobody ends it
    tensors = []
    for _ in range(3):
        tensor = torch.ones(3)
        tensors.append(weakref.ref(tensor))
        smp.allreduce([tensor]).wait()
        del tensor
    assert [tensor() is None for tensor in tensors] == [True, True, False]
    smp._start_coalescing(cpu)
    assert tensors[2]() is None
    total = torch.ones(1)
    smp.allreduce([total])
    smp._end_coalescing(cpu).wait()
    assert total.item() == size


def groups_and_objects():
    said = [None] * size
    dist.all_gather_object(said, {"rank": rank, "text": "x" * rank}, group=smp)
    assert [entry["rank"] for entry in said] == list(range(size))
    heard = [("a", size) if rank == 0 else None]
    dist.broadcast_object_list(heard, 0, group=smp)
    assert heard == [("a", size)]
    mine = [None]
    dist.scatter_object_list(mine, [str(i) for i in range(size)] if rank == 1 else None, 1, group=smp)
    assert mine == [str(rank)]

    pairs = [dist.new_group([i, i + 1], backend="smp") for i in range(0, size - 1)]
    for first, pair in enumerate(pairs):
        if rank in (first, first + 1):
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=pair)
            assert tensor.item() == 2 * first + 1
            dist.broadcast(tensor, src=first + 1, group=pair)  # a rank of the job, not of the group
    backwards = dist.new_group(list(reversed(range(size))), backend="smp")
    dist.barrier(backwards)
    dist.destroy_process_group(backwards)
    dist.barrier(smp)


hosts = int(os.environ.get("TEST_HOSTS", "1"))
if hosts > 1:
    host = int(os.environ["RANK"]) * hosts // int(os.environ["WORLD_SIZE"])
    os.environ["SMP_HOST_IDENTITY"] = f"host {host}"
store, rank, size = next(dist.rendezvous("env://"))


def begin(backend):
    dist.init_process_group(backend, store=dist.PrefixStore(backend, store), rank=rank, world_size=size)


device = os.environ.get("SMP_TEST_DEVICE", "cpu")
if device == "cuda":
    torch.cuda.set_device(rank % torch.cuda.device_count())
torch.set_default_device(device)
begin("gloo")
gloo, smp = dist.group.WORLD, dist.new_group(backend="smp")
for test in (reductions, symmetric_memory, moves, messages, futures_and_coalescing,
             coalescing_left_by_an_exception, groups_and_objects):
    test()
dist.destroy_process_group()

# Each kind of tensor by its own backend.
other = "cuda" if device == "cpu" else "cpu"
begin(f"{device}:smp,{other}:gloo")
group = dist.group.WORLD
assert [group._get_backend(torch.device(kind)).name() for kind in (device, other)] == ["smp", "gloo"]
numbers = torch.arange(5)
dist.all_reduce(numbers)
assert torch.equal(numbers, torch.arange(5) * size)
half = dist.new_group([0, 1])  # of the same backends
if rank < 2:
    dist.barrier(half)
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    print("operations: as gloo's")
