#!/usr/bin/env python3
"""Runs the scripts of configs/ci/ (GitHub's action, GitLab's template) as those systems do, on good and bad jobs:
check_ci_files.py BIN CONFIGS. Ends with 77 where PyYAML is not installed."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

os.environ["SMP_NO_MEASURE"] = "1"  # a cluster named local has the numbers of its file
BIN, CONFIGS = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
QUICKSTART = (CONFIGS / "jobs/quickstart.yaml").read_text()
FITS, TIGHT, NO, INVALID = "fits.yaml", "tight.yaml", "no.yaml", "invalid.yaml"
failures = []


def check(what, holds, done):
    if not holds:
        failures.append(what)
        print(f"FAILED: {what}\n{done.returncode}\n{done.stdout}{done.stderr}")


def run(script, folder, env):
    return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], cwd=folder, text=True, capture_output=True,
                          env={**os.environ, **env})


def github(folder, files, fail_on):
    action = yaml.safe_load((CONFIGS / "ci/action.yml").read_text())
    inputs = {name: str(value.get("default", "")) for name, value in action["inputs"].items()}
    inputs |= {"files": files, "fail-on": fail_on, "bin": str(BIN)}
    step, = action["runs"]["steps"]
    env = {}
    for name, value in step["env"].items():
        key = value.removeprefix("${{ inputs.").removesuffix(" }}")
        env[name] = inputs[key]
    env |= {"GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(CONFIGS / "ci"), "GITHUB_STEP_SUMMARY": f"{folder}/summary"}
    return run(step["run"], folder, env)


def gitlab(folder, files, fail_on):
    template = yaml.safe_load((CONFIGS / "ci/gitlab-ci.yml").read_text())
    env = {name: str(value) for name, value in template["variables"].items()}
    # A checkout, whose programs are these.
    home = folder / "home"
    (home / "build/release").mkdir(parents=True, exist_ok=True)
    for link, target in ((home / "build/release/bin", BIN), (home / "scripts", CONFIGS.parent / "scripts")):
        if not link.is_symlink():
            link.symlink_to(target)
    env |= {"SMP_HOME": str(home), "SMP_CHECK_FILES": files, "SMP_CHECK_FAIL_ON": fail_on}
    return run("\n".join(template["smp-check"]["script"]), folder, env)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    jobs = folder / "jobs"
    jobs.mkdir()
    (jobs / FITS).write_text(QUICKSTART)
    (jobs / TIGHT).write_text(QUICKSTART.replace("memory_per_process: 62MiB", "memory_per_process: 22500KiB"))
    (jobs / NO).write_text(QUICKSTART.replace("memory_per_process: 62MiB", "memory_per_process: 1MiB"))
    (jobs / INVALID).write_text(QUICKSTART.replace("num_heads: 4", "num_heads: 3"))
    for system in (github, gitlab):
        for files, fail_on, code in ((f"jobs/{FITS}", "warning", 0), (f"jobs/{TIGHT}", "tight", 5),
                                     (f"jobs/{TIGHT}", "no", 0), (f"jobs/{NO} jobs/{FITS}", "no", 4),
                                     ("jobs/*.yaml", "tight", 3), ("jobs/*.none", "tight", 2)):
            done = system(folder, files, fail_on)
            check(f"{system.__name__}: {files} --fail-on {fail_on} ends with {code}", done.returncode == code, done)
            if code not in (0, 2):
                check(f"{system.__name__}: a line a file", done.stdout.startswith("jobs/"), done)
    done = github(folder, "jobs/*.yaml", "tight")
    check("github: annotations of two errors and a warning",
          [line.split(" ")[0] for line in done.stdout.splitlines() if line.startswith("::")]
          == ["::error", "::error", "::warning"], done)
    report = json.loads((folder / "check.sarif").read_text())
    check("github: the SARIF report has them", len(report["runs"][0]["results"]) == 3, done)
    check("github: a summary without commands", "jobs/no.yaml: no: " in (folder / "summary").read_text()
          and "::" not in (folder / "summary").read_text().replace("```", ""), done)
    done = gitlab(folder, "jobs/*.yaml", "tight")
    report = json.loads((folder / "smp-check.json").read_text())
    check("gitlab: the JSON report", [file["verdict"] for file in report["files"]]
          == ["fits", "invalid", "no", "tight"], done)
sys.exit(1 if failures else 0)
