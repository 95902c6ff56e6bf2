#!/usr/bin/env python3
"""Trials: ranks make the same random calls, one is killed at a random moment, and every other one must
raise in time and name it.

  deaths.py [TRIALS [SEED]]      TEST_HOSTS=2: the ranks take themselves to be on two hosts

Ranks are forked from one process that has torch, which takes seconds to load."""
import datetime
import os
import random
import select
import signal
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import smp_torch  # noqa: F401

RANKS = 3
HOSTS = int(os.environ["TEST_HOSTS"])
LIMIT = 1 if HOSTS == 1 else 5  # seconds from the death to the last error
WAIT = 30  # seconds until a silent rank is taken to hang


def call_at_random(choice, rank):
    """One call, the same on all ranks with the same `choice`; half of them are waited for as futures."""
    count, root = choice.randrange(1, 1 << choice.randrange(1, 19)), choice.randrange(RANKS)
    whole, part = torch.ones(count * RANKS), torch.ones(count)
    kind = choice.randrange(6)
    if kind == 5:
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, part, (rank + 1) % RANKS),
                                        dist.P2POp(dist.irecv, torch.zeros(count), (rank - 1) % RANKS)])
    else:
        works = [[lambda: dist.all_reduce(part, async_op=True),
                  lambda: dist.all_gather_into_tensor(whole, part, async_op=True),
                  lambda: dist.reduce_scatter_tensor(part, whole, async_op=True),
                  lambda: dist.broadcast(part, root, async_op=True),
                  lambda: dist.all_to_all_single(torch.zeros_like(whole), whole, async_op=True)][kind]()]
    as_future = choice.random() < 0.5
    for work in works:
        work.get_future().wait() if as_future else work.wait()


def run_rank(rank, folder, seed, out):
    if HOSTS > 1:
        os.environ["SMP_HOST_IDENTITY"] = f"host {rank * HOSTS // RANKS}"
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group("smp", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=60))
    os.write(out, b"ready\n")
    choice = random.Random(seed)
    try:
        while True:
            call_at_random(choice, rank)
    except RuntimeError as error:
        at = time.monotonic()
        os.write(out, f"{at} {error}".replace("\n", " ").encode() + b"\n")
    dist.destroy_process_group()


def start(rank, folder, seed):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            run_rank(rank, folder, seed, write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    return child, read


def line_of(pipe, until):
    """What a rank says next, or nothing when it ends or is silent."""
    said = b""
    while not said.endswith(b"\n"):
        if not select.select([pipe], [], [], max(0, until - time.monotonic()))[0]:
            return None
        more = os.read(pipe, 4096)
        if not more:
            return None
        said += more
    return said.decode()


def trial(seed):
    """The seconds from the death until the last survivor raised."""
    choice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start(rank, folder, seed) for rank in range(RANKS)]
        try:
            for _, pipe in ranks:
                assert line_of(pipe, time.monotonic() + 60) == "ready\n", f"seed {seed}: no start"
            victim = choice.randrange(RANKS)
            time.sleep(choice.random() * 0.05)
            os.kill(ranks[victim][0], signal.SIGKILL)
            died, slowest = time.monotonic(), 0
            for rank, (_, pipe) in enumerate(ranks):
                if rank == victim:
                    continue
                said = line_of(pipe, died + WAIT)
                assert said is not None, f"seed {seed}: rank {rank} hangs or has ended"
                at, text = said.split(" ", 1)
                assert "smp: lost peer" in text and f"rank {victim}" in text, f"seed {seed}: {text}"
                slowest = max(slowest, float(at) - died)
            assert slowest <= LIMIT, f"seed {seed}: {slowest:.2f} s"
        except AssertionError:
            for child, _ in ranks:
                os.kill(child, signal.SIGKILL)
            raise
        finally:
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child, _ in ranks]
            for _, pipe in ranks:
                os.close(pipe)
        expected = [-signal.SIGKILL if rank == victim else 0 for rank in range(RANKS)]
        assert codes == expected, f"seed {seed}: exit codes {codes}"
        return slowest


trials = int(sys.argv[1]) if len(sys.argv) > 1 else 10
first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
torch.set_num_threads(1)
seconds = [trial(first + i) for i in range(trials)]
print(f"deaths: {trials} of {trials} told by all survivors, median {statistics.median(seconds) * 1e3:.1f} ms, "
      f"slowest {max(seconds) * 1e3:.1f} ms")
