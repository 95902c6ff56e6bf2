"""The collectives of smp as a backend of torch.distributed, for tensors on the CPU and on GPUs.

    import smp_torch  # not needed where its wheel is installed
    torch.distributed.init_process_group("smp")
"""
import datetime
import multiprocessing.util

import torch
import torch.distributed as dist

import smp_torch_autoload

_TORCH = "2.11"
if torch.__version__.split("+")[0].rsplit(".", 1)[0] != _TORCH:
    raise ImportError(f"smp_torch was built for torch {_TORCH}, but torch is {torch.__version__}")

from . import _backend  # noqa: E402  (after torch, whose libraries it needs)


def _create(group, options):
    if options is not None:
        raise ValueError("the backend smp takes no pg_options: pass None")
    return _backend.create(group)


def _leave():
    """Leaves the groups that the program has not destroyed. Without this, peers would report a death."""
    for group in list(dist.distributed_c10d._world.pg_map):
        for device in group._device_types:
            _backend.leave(group._get_backend(device))


def shrink(limit=datetime.timedelta(seconds=30), timeout=None):
    """Creates the default process group again without the ranks that died. All remaining ranks call it,
    in the same processes, after a rank died or the group failed. Ranks keep their order. A rank that
    does not call within `limit` is left out, as long as more than half of the ranks call. All other
    groups are destroyed. `timeout` is the new group's. Returns the former rank of each new rank."""
    group = dist.distributed_c10d._get_default_group()
    config = dist.get_backend_config(group)
    backend = group._get_backend(torch.device("cpu"))
    left = _backend.shrink(backend, int(limit.total_seconds() * 1000))
    del backend, group
    dist.destroy_process_group()
    # The store may have died with its rank.
    first = left.rank == 0
    host = _backend.own_address() if first else ""
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False) if first else None
    place = left.from_first(f"{host} {store.port}" if first else "")
    if not first:
        host, port = place.split()
        store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
    dist.init_process_group(config, store=store, rank=left.rank, world_size=len(left.former),
                            timeout=timeout)
    return left.former


def get_error(group=None):
    """The error that ended a process group of smp (default: the default group), without a collective call:
    torch's ErrorType.SUCCESS while the group works, TIMEOUT, or COMM_ERROR for all other errors. Any thread."""
    group = dist.distributed_c10d._get_default_group() if group is None else group
    for device in group._device_types:
        backend = group._get_backend(device)
        if backend.name() == "smp":
            return _backend.get_error(backend)
    raise ValueError("smp_torch.get_error: the process group has no backend smp")


def last_calls(most=32):
    """The last `most` calls (up to 1024) of each process group of this process, as a table for people.
    Any thread, at any time."""
    return _backend.last_calls(most)


def print_calls_on(signal):
    """Makes this process print its last_calls() to standard error on a signal, such as SIGUSR2, even while
    all of its threads wait."""
    _backend.print_calls_on(int(signal))


smp_torch_autoload.register()
# Also at the end of processes of multiprocessing, which skip atexit.
multiprocessing.util.Finalize(None, _leave, exitpriority=0)
