#!/usr/bin/env python3
"""Checks scripts/dump-torchtitan-config with classes that stand in for torchtitan's (stand_in.py).

  check_dump.py ROOT SMP_PLAN

What is printed of the stand-in is tests/golden/interchange/import/torchtitan-registry.json. The exported modules of
tests/golden/interchange/export, printed and imported, are exported as the same modules again.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT, PLAN = pathlib.Path(sys.argv[1]), sys.argv[2]
SCRIPT = ROOT / "scripts" / "dump-torchtitan-config"
FOLDER = ROOT / "tests" / "golden" / "interchange"
GOLDEN = FOLDER / "import" / "torchtitan-registry.json"


def run(*arguments, path=()):
    folders = [str(ROOT / "tests" / "interchange" / "titan"), *map(str, path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(list(map(str, arguments)), capture_output=True, text=True, env=environment)


def dump(*arguments, path=()):
    return run(sys.executable, SCRIPT, *arguments, path=path)


def again(case, scratch):
    """The module that the imported dump of an exported module becomes, and the first one."""
    module = (FOLDER / "export" / case / "torchtitan.py").read_text()
    (scratch / "exported.py").write_text(module)
    name = re.search(r"^def (\w+)\(\) -> Trainer", module, re.M).group(1)
    printed = dump("exported", name, path=[scratch])
    (scratch / "titan.json").write_text(printed.stdout)
    imported = run(PLAN, "import", scratch / "titan.json")
    cluster = re.search(r"^cluster: .*$", (FOLDER / "export" / f"{case}.yaml").read_text(), re.M).group(0)
    job = scratch / f"{case}.yaml"
    job.write_text(f"{imported.stdout}\n{cluster}\n")
    exported = run(PLAN, "export", job, "--to", "torchtitan")
    return exported.stdout or printed.stderr + imported.stderr + exported.stderr, module


printed = dump("stand_in", "llama3_8b_fp8", "training.steps=2000", "debug.deterministic=True")
if os.environ.get("SMP_UPDATE_GOLDEN"):
    GOLDEN.write_text(printed.stdout)
missing, wrong = dump("no_such_module", "f"), dump("stand_in", "llama3_8b_fp8", "training.step=1")
checks = {
    "the printed configuration": printed.stdout == GOLDEN.read_text() and printed.returncode == 0,
    "a module that is missing": missing.returncode == 1 and "no module torchtitan.models.no_such_module" in missing.stderr,
    "an override of no key": wrong.returncode == 1 and "training.step=1: expected SECTION.KEY=VALUE" in wrong.stderr,
    "the help": "Trainer.Config" in dump("--help").stdout,
}
shown = [printed.stderr, missing.stderr, wrong.stderr]
cases = sorted(path.parent.name for path in FOLDER.glob("export/*/torchtitan.py"))
for case in cases:
    with tempfile.TemporaryDirectory() as scratch:
        second, first = again(case, pathlib.Path(scratch))
    # The steps are torchtitan's default, where the exported module has none.
    second = re.sub(r"        steps=10000,\n", "", second)
    checks[f"the exported {case}, printed and imported"] = second == first
    shown += [] if second == first else [first, second]
checks["several exported modules"] = len(cases) > 2
for name, good in checks.items():
    print("ok  " if good else "FAIL", name)
if not all(checks.values()):
    print(*shown, sep="\n")
sys.exit(0 if all(checks.values()) else 1)
