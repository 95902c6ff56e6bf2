"""Registers the backend "smp" with torch.distributed. The package itself is loaded with the first process group.
`import torch` calls this if the wheel is installed (entry points "torch.backends"); so does `import smp_torch`."""


def register():
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, "SMP"):
        dist.Backend.register_backend("smp", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(group, options):
    import smp_torch

    return smp_torch._create(group, options)
