"""The collectives of smp as a backend of torch.distributed, for tensors on the CPU.

    import smp_torch
    torch.distributed.init_process_group("smp")
"""
import multiprocessing.util

import torch
import torch.distributed as dist

_TORCH = "2.11"
if torch.__version__.split("+")[0].rsplit(".", 1)[0] != _TORCH:
    raise ImportError(f"smp_torch is built for torch {_TORCH}, this is {torch.__version__}")

from . import _backend  # noqa: E402  (after torch, whose libraries it needs)


def _create(group, options):
    if options is not None:
        raise ValueError("the backend smp takes no pg_options")
    return _backend.create(group)


def _leave():
    """Leaves the groups that the program has not destroyed: peers take a silent end for a death."""
    cpu = torch.device("cpu")
    for group in list(dist.distributed_c10d._world.pg_map):
        if cpu in group._device_types:
            _backend.leave(group._get_backend(cpu))


dist.Backend.register_backend("smp", _create, extended_api=True, devices=["cpu"])
# Also at the end of processes of multiprocessing, which skip atexit.
multiprocessing.util.Finalize(None, _leave, exitpriority=0)
