#!/usr/bin/env python3
"""One rank of three: what the backend refuses, what fails, and how it says so."""
import datetime
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

import smp_torch


def refused(call, text, kind=RuntimeError):
    try:
        call()
    except kind as error:
        assert re.search(text, str(error)), f"said: {error}"
        return
    raise AssertionError(f"not refused: {text}")


def seconds(count):
    return datetime.timedelta(seconds=count)


# What goes wrong in torch's store is told as it is; a rank that does not come is a time-out.
def store_failures():
    class Store(dist.Store):
        """Torn while somebody waits, once its rank has written what it writes first."""
        def add(self, key, amount):
            return 1

        def set(self, key, value):
            pass

        def wait(self, keys, timeout=None):
            raise RuntimeError("the server is gone")

    with tempfile.TemporaryDirectory() as folder:
        for store, limit, text in (
                (Store(), 0.2, r"smp: the store of process group \w+ failed in wait: .*the server is gone"),
                (dist.HashStore(), 0.2, r"smp: timeout in process group \w+: rank 1 did not join within 0.2 s"),
                # This one counts whole seconds.
                (dist.FileStore(os.path.join(folder, "store"), 2), 1,
                 r"smp: timeout in process group \w+: rank 1 did not join within 1 s")):
            refused(lambda: dist.init_process_group("smp", store=store, rank=0, world_size=2,
                                                    timeout=seconds(limit)), text, dist.DistBackendError)


# What keeps rank 0 of two hosts from letting the other in is told to both, who do not wait.
def no_door():
    text = r"smp: .*a process group on several hosts needs MASTER_ADDR"
    with tempfile.TemporaryDirectory() as folder:
        init = f"file://{folder}/store"
        code = (f"import sys, torch.distributed as dist\nimport smp_torch\n"
                f"dist.init_process_group('smp', init_method={init!r}, rank=int(sys.argv[1]), world_size=2)")
        environment = {k: v for k, v in os.environ.items() if k != "MASTER_ADDR"}
        began = time.monotonic()
        ranks = [subprocess.Popen([sys.executable, "-c", code, str(rank)], stderr=subprocess.PIPE, text=True,
                                  env=dict(environment, SMP_HOST_IDENTITY=f"host-{rank}")) for rank in range(2)]
        for process in ranks:
            said = process.communicate(timeout=60)[1]
            assert process.returncode == 1 and re.search(text, said), said
        assert time.monotonic() - began < 45


# The launcher must not see the death that this is about: it would end the others.
if os.environ["RANK"] == "2" and "DIES" not in os.environ:
    store_failures()
    no_door()
    done = subprocess.run([sys.executable, __file__], env=dict(os.environ, DIES="yes"))
    sys.exit(0 if done.returncode == -signal.SIGKILL else 1)

dist.init_process_group("smp", timeout=seconds(60))
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 3

# Arguments that cannot be: nothing is sent, the group lives.
refused(lambda: dist.all_reduce(torch.ones(2).to_sparse()),
        "smp: all_reduce takes dense tensors only; got Sparse")
refused(lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BXOR),
        "smp: all_reduce supports sum, average, product, min and max, but not bitwise reductions and "
        "scaled sums")
refused(lambda: dist.all_reduce(torch.tensor([True]), dist.ReduceOp.AVG),
        "smp: all_reduce of Bool supports sum, max, product and min only")
refused(lambda: dist.all_gather_into_tensor(torch.zeros(5), torch.zeros(2)),
        "smp: all_gather_into_tensor: the output has 5 elements, not 3 x 2")
refused(lambda: dist.reduce_scatter_tensor(torch.zeros(2), torch.zeros(5)),
        "smp: reduce_scatter_tensor: the input has 5 elements, not 3 x 2")
refused(lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(4)),
        "smp: all_to_all: the input has 4 rows, which is not a multiple of the number of ranks, 3")
refused(lambda: dist.recv(torch.zeros(1)), "does not support recvAnysource")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == 3

# A wait's own time-out leaves the call under way.
if rank == 0:
    work = dist.all_reduce(total, async_op=True)
    refused(lambda: work.wait(seconds(0.1)), r"smp: timeout in process group \w+: ALLREDUCE #\d+ is "
            "not complete after 100 ms of waiting; the call continues", dist.DistBackendError)
    dist.send(torch.ones(1), 1)
    work.wait()
elif rank == 1:
    dist.recv(torch.zeros(1), 0)
    dist.all_reduce(total)
else:
    dist.all_reduce(total)
assert total.item() == 9

# What a rank was at is told when it asks, on a signal, and once by a group that fails.
class Said:
    """What comes to standard error meanwhile."""
    def __enter__(self):
        self.file = tempfile.TemporaryFile("w+")
        self.kept = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def text(self):
        self.file.seek(0)
        return self.file.read()

    def __exit__(self, *_):
        os.dup2(self.kept, 2)
        os.close(self.kept)


row = r"all_reduce +1 fp32 +- done "
table = r"process group 0: the last \d+ calls of rank %d, oldest first; times are ages\n(.*\n)*.*" % rank + row
assert re.search(table, smp_torch.last_calls()), smp_torch.last_calls()
assert len(smp_torch.last_calls(1).splitlines()) == 3, smp_torch.last_calls(1)
refused(lambda: smp_torch.print_calls_on(99), r"smp: print_calls_on\(99\): no such signal", ValueError)
def waits_for(number):
    """The threads of this process that may take the signal."""
    threads = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/status") as file:
            mask = int(re.search(r"SigBlk:\s*(\w+)", file.read())[1], 16)
        if not mask >> (number - 1) & 1:
            threads.append(thread)
    return threads


torch.set_num_threads(2)
factor = torch.rand(300, 300)
product = factor @ factor  # torch's threads are there before
smp_torch.print_calls_on(signal.SIGUSR2)
waited = time.monotonic() + 60
while len(waits_for(signal.SIGUSR2)) != 1:  # no handler runs on a thread that computes
    assert time.monotonic() < waited, waits_for(signal.SIGUSR2)
    time.sleep(0.01)
assert signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, [])
refused(lambda: smp_torch.print_calls_on(signal.SIGUSR1),
        r"smp: print_calls_on\(10\): calls are already printed on signal 12; only one signal is supported", ValueError)
with Said() as said:
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGUSR2)
        assert torch.equal(factor @ factor, product)
    waited = time.monotonic() + 60
    while not re.search(table, said.text()):
        assert time.monotonic() < waited, said.text()
        time.sleep(0.01)

dist.barrier()

# A group's time-out names who has not called; the other groups live.
late = dist.new_group([0, 2], timeout=seconds(0.5))
if rank == 0:
    began = time.monotonic()
    said = Said()
    said.__enter__()
    refused(lambda: dist.all_reduce(torch.ones(1), group=late),
            r"smp: timeout in process group \w+ \(its ranks 0, 1 are 0, 2 of the job\): rank 0: "
            r"all_reduce #1 'pytorch' of 1 fp32 timed out after 0.5 s: rank 1 has not made this call",
            dist.DistBackendError)
    assert 0.4 < time.monotonic() - began < 10
    refused(lambda: dist.all_reduce(torch.ones(1), group=late), "rank 1 has not made this call", dist.DistBackendError)
    assert smp_torch.get_error(late) == ErrorType.TIMEOUT
    said.__exit__()
    failed = re.findall(r"smp: process group \w+ \(its ranks 0, 1 are 0, 2 of the job\): the last 1 calls? of "
                        r"rank 0, .*\n.*\n.* 1 all_reduce +1 fp32 +- failed ", said.text())
    assert len(failed) == 1, said.text()
dist.barrier()

# Calls that do not belong together: both sides hear of both, in their own group only.
pair = dist.new_group([1, 2])
if rank > 0:
    call = dist.all_reduce if rank == 1 else lambda t, group: dist.broadcast(t, 1, group=group)
    refused(lambda: call(torch.ones(1), group=pair), "smp: mismatch in .*all_reduce.*broadcast", dist.DistBackendError)
dist.barrier()

# A program that ends with calls under way gives its groups up; who waits hears of it.
if rank > 0:
    assert smp_torch.get_error(pair) == ErrorType.COMM_ERROR
assert smp_torch.get_error() == ErrorType.SUCCESS
pair = dist.new_group([0, 1])
if rank == 0:
    dist.irecv(torch.zeros(1), 1, group=pair)
    smp_torch._backend.leave(pair._get_backend(torch.device("cpu")))
    refused(lambda: dist.barrier(pair), "smp: the process group is shut down")
elif rank == 1:
    refused(lambda: dist.barrier(pair), "smp: abort in .*rank 0 aborted: the program ended while "
            "calls were in progress", dist.DistBackendError)
dist.barrier()

# An abort from any thread ends this rank's call and that of its peer, of this group alone.
pair = dist.new_group([0, 1])
if rank == 0:
    backend = pair._get_backend(torch.device("cpu"))
    threading.Timer(0.2, backend.abort).start()
    refused(lambda: dist.all_reduce(torch.ones(1), group=pair), "smp: abort in .*rank 0 aborted", dist.DistBackendError)
    refused(lambda: dist.all_reduce(torch.ones(1), group=pair), "smp: abort in ", dist.DistBackendError)
elif rank == 1:
    refused(lambda: dist.recv(torch.ones(1), 0, group=pair), "smp: abort in .*rank 0 aborted", dist.DistBackendError)
dist.barrier()

# The death of a rank is heard by all others, whatever they wait for, and without a call.
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
waited = time.monotonic() + 60
while smp_torch.get_error() != ErrorType.COMM_ERROR:
    assert time.monotonic() < waited
    time.sleep(0.01)
future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
refused(future.wait, "smp: lost peer in process group 0: .*rank 2", RuntimeError)
refused(lambda: dist.barrier(), "rank 2", dist.DistBackendError)
print("failures: as they should be")
