#!/usr/bin/env python3
"""Holds every file under configs/ that is a job or a part of one against the schema with python's jsonschema and PyYAML, which
know nothing of ours: check_schema.py SMP_PLAN CONFIGS. Ends with 77 where they are not installed."""
import glob
import json
import subprocess
import sys

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

MODEL = {"num_layers": 4, "hidden_size": 128, "num_heads": 4, "vocab_size": 256}


def main():
    schema = json.loads(subprocess.run([sys.argv[1], "schema"], check=True,
                                       capture_output=True, text=True).stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    broken = files = 0
    for path in sorted(glob.glob(sys.argv[2] + "/*/*.yaml")):
        if "/frameworks/" in path:
            continue
        with open(path, encoding="utf-8") as file:
            job = yaml.safe_load(file)
        job.setdefault("model", MODEL)
        files += 1
        for error in validator.iter_errors(job):
            broken += 1
            print(f"{path}: {error.json_path}: {error.message}")
    print(f"{files} files, {broken} errors")
    return 1 if broken or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
