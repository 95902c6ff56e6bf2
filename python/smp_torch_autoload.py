"""Tells torch.distributed of the backend "smp"; the package itself is loaded with the first group on it. `import torch`
calls this where the wheel is installed (torch's entry points "torch.backends"), and so does `import smp_torch`."""


def register():
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, "SMP"):
        dist.Backend.register_backend("smp", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(group, options):
    import smp_torch

    return smp_torch._create(group, options)
