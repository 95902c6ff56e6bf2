#!/usr/bin/env python3
"""Checks what scripts/dump-torchtitan-config prints for the stand-in: tests/golden/interchange/import has the same text.

  check_dump.py ROOT
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1])
SCRIPT = ROOT / "scripts" / "dump-torchtitan-config"
GOLDEN = ROOT / "tests" / "golden" / "interchange" / "import" / "torchtitan-registry.json"


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "interchange" / "titan")}
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, env=environment)


printed = run("stand_in", "llama3_8b_fp8", "training.steps=2000", "debug.deterministic=True")
if os.environ.get("SMP_UPDATE_GOLDEN"):
    GOLDEN.write_text(printed.stdout)
missing, wrong = run("no_such_module", "f"), run("stand_in", "llama3_8b_fp8", "training.step=1")
checks = {
    "the printed configuration": printed.stdout == GOLDEN.read_text() and printed.returncode == 0,
    "a module that is missing": missing.returncode == 1 and "no module torchtitan.models.no_such_module" in missing.stderr,
    "an override of no key": wrong.returncode == 1 and "training.step=1: expected SECTION.KEY=VALUE" in wrong.stderr,
    "the help": "Trainer.Config" in run("--help").stdout,
}
for name, good in checks.items():
    print("ok  " if good else "FAIL", name)
if not all(checks.values()):
    print(printed.stdout, printed.stderr, missing.stderr, wrong.stderr, sep="\n")
sys.exit(0 if all(checks.values()) else 1)
