#!/usr/bin/env python3
"""The wheel of smp_torch, made and installed without a network, imported and used:
wheel.py PYTHON [MODULE]. With MODULE, the module of C++ as it has been compiled, nothing is compiled;
without it all is done as by `pip install ./python`, which takes minutes: scripts/check-wheel."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAKE = """
import pathlib, sys
import build_wheel
build_wheel.build_module = lambda: pathlib.Path(sys.argv[2])
build_wheel.build_wheel(sys.argv[1])
"""
USE = """
import importlib.metadata, pathlib, sys
import torch, torch.distributed as dist
site, version = sys.argv[1:]
assert "smp_torch" not in sys.modules
dist.init_process_group("smp", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.ones(3)
dist.all_reduce(tensor)
assert tensor.tolist() == [1, 1, 1]
dist.destroy_process_group()
import smp_torch
for file in (smp_torch.__file__, smp_torch._backend.__file__):
    assert pathlib.Path(file).is_relative_to(site), file
wheel = importlib.metadata.distribution("smp_torch")
assert wheel.version == version, wheel.version
assert wheel.requires == ["torch==2.11.*"], wheel.requires
print("wheel: installed, imported and used")
"""


def run(command, **environment):
    done = subprocess.run(command, env=dict(os.environ, **environment), cwd=scratch)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:4]))} ... ended with {done.returncode}")


python, *module = sys.argv[1:]
if not python or subprocess.run([python, "-c", "import pip, torch; assert torch.__version__.startswith('2.11')"], capture_output=True).returncode != 0:
    print("skipped: no Python that has pip and torch 2.11: configure with SMP_PYTHON")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    what, site = ROOT / "python", pathlib.Path(scratch, "site")
    if module:
        run([python, "-c", MAKE, scratch, *module], PYTHONPATH=str(what), PYTHONDONTWRITEBYTECODE="1")
        (what,) = pathlib.Path(scratch).glob("smp_torch-*.whl")
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps",
         "--target", site, what])
    version = re.search(r"project\(smp VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    run([python, "-c", USE, site, version], PYTHONPATH=str(site))
    run([python, "-c", "import smp_torch, torch.distributed; assert torch.distributed.Backend.SMP == 'smp'"],
        PYTHONPATH=str(site))
