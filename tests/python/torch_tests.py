#!/usr/bin/env python3
"""PyTorch's own tests of a backend (torch.testing._internal.distributed.distributed_test) on "smp" or
another backend: torch_tests.py BACKEND OUT.json [PATTERN]. Called by scripts/check-pytorch-tests.

Each test runs in 4 processes, or 8 where it asks for them, forked, as in PyTorch's test_distributed_fork.py. Most of them ask for
the backend's name and skip all but "gloo", "mpi" or "nccl"; "smp" is let through where gloo or MPI
is. OUT.json tells of each test whether it passed, failed or was skipped, and what it said."""
import fnmatch
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest

os.environ.update(BACKEND=sys.argv[1], WORLD_SIZE="4", OMP_NUM_THREADS="1",
                  TEMP_DIR=tempfile.mkdtemp(), MASTER_ADDR="127.0.0.1", MASTER_PORT="0")

import smp_torch  # noqa: E402, F401
import torch  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

SECONDS = 60  # of a test that hangs
THEIRS = "torch.testing._internal.distributed.distributed_test"


class Welcome(str):
    """The name of a backend where tests ask for it: equal to those that it stands in for."""
    def __eq__(self, other):
        return str.__eq__(self, other) or other in ("gloo", "mpi")

    def __ne__(self, other):
        return not self == other

    __hash__ = "gloo".__hash__  # to be found in sets


def load_theirs():
    origin = importlib.util.find_spec(THEIRS).origin
    line = 'BACKEND = os.environ["BACKEND"]\n'
    source = pathlib.Path(origin).read_text()
    assert source.count(line) == 1
    module = types.ModuleType(THEIRS)
    module.__file__ = origin
    module.__dict__["welcome"] = Welcome if sys.argv[1] == "smp" else str
    sys.modules[THEIRS] = module
    exec(compile(source.replace(line, 'BACKEND = welcome(os.environ["BACKEND"])\n'), origin, "exec"),
         module.__dict__)
    module.default_pg_timeout = 30
    return module


features = common_distributed.DistTestCases
features.backend_feature["plugin"].add("smp")
features.skip_collective["sendrecv anysource"].add("smp")
theirs = load_theirs()
common_distributed.get_timeout = lambda test_id: SECONDS


class OwnTests(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "Error" in line and not line.startswith("File")]
    return (causes or lines or [""])[-1][:300]


def main():
    pattern = sys.argv[3] if len(sys.argv) > 3 else "*"
    out = pathlib.Path(sys.argv[2])
    results = {}
    names = [name for name in unittest.TestLoader().getTestCaseNames(OwnTests)
             if fnmatch.fnmatch(name, pattern)]
    for name in names:
        for ranks in ("4", "8"):
            os.environ["WORLD_SIZE"] = ranks
            result = unittest.TestResult()
            OwnTests(name).run(result)
            if not any("small world size" in text for _, text in result.skipped):
                break
        said = [text for _, text in result.failures + result.errors]
        skipped = [text for _, text in result.skipped]
        outcome = "failed" if said else "skipped" if skipped else "passed"
        results[name] = {"outcome": outcome, "said": last_line((said or skipped or [""])[0])}
        print(f"{outcome:8}{name}  {results[name]['said'] if outcome != 'passed' else ''}", flush=True)
        out.write_text(json.dumps(results, indent=1))
    counts = [sum(r["outcome"] == kind for r in results.values())
              for kind in ("passed", "failed", "skipped")]
    print(f"{sys.argv[1]}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")


main()
