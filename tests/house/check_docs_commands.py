#!/usr/bin/env python3
"""scripts/check-docs-commands on pages of its own, with programs that only do what they are told.

  check_docs_commands.py SOURCE_DIR
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

PLAN = '#!/bin/sh\necho "plan $*"\ntest "$1" != fail || exit 3\n'
LAUNCH = '#!/bin/sh\ntest "$1" = --dry-run && { echo dry; exit 0; }\necho "starts"; exit 9\n'
PAGE = r"""
```
smp-plan fail because it has no mark
```
<!-- runs -->
```
smp-plan a > made     # a remark
test "$(cat made)" = "plan a"
```
<!-- runs after: echo x > before -->
Text `smp-plan b`, `smp-plan fail ...`, `fail` and `smp-plan
c`, before it.

<!-- runs dry -->
| a | b |
|---|---|
| `smp-launch plan.yaml` | `smp-launch --dry-run plan.yaml` |

<!-- runs, exit code 3 -->
```
$ smp-plan fail on purpose
plan fail on purpose
```
<!-- prints -->
```
plan fail on purpose
```
<!-- file job.yaml, runs: grep -qF "'\$b'" job.yaml && test -e before -->
```yaml
a: '$b'
```
<!-- runs -->
```
test -e configs/here && test -e docs && ! test -e build
```
"""
BAD = """
<!-- runs -->
```
smp-plan fail
echo not reached
```
<!-- runs -->
Here is `smp-launch plan.yaml`.

<!-- runs -->
```
printf '%s\\n' a b c d e
```
<!-- prints -->
```
b
...
d
e
```
<!-- prints -->
```
b
d
```
"""


def main(source):
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        files = {"build/release/bin/smp-plan": PLAN, "build/release/bin/smp-launch": LAUNCH, "README.md": PAGE,
                 "docs/deep/page.md": PAGE, "configs/here": ""}
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o700)
        pathlib.Path(folder, "scripts").mkdir()
        script = shutil.copy(pathlib.Path(source, "scripts/check-docs-commands"), pathlib.Path(folder, "scripts"))

        def check(code, *told):
            done = subprocess.run([script], capture_output=True, text=True)
            said = done.stdout + done.stderr
            if done.returncode != code or not all(one in said for one in told):
                problems.append(f"exit code {done.returncode} instead of {code}, or not told: {told}\n{said}")
            return said

        check(0, "14 marked, 0 failed")
        page = pathlib.Path(folder, "docs/bad.md")
        page.write_text(BAD)
        said = check(1, "19 marked, 3 failed", "docs/bad.md:2: exit code 3 instead of 0\nplan fail\n",
                     "docs/bad.md:7: exit code 9 instead of 0\nstarts\n",
                     "docs/bad.md:21: the commands do not print\nd\nbut\nc\n")
        if "plan fail\nnot reached" in said:
            problems.append("went on behind a command that failed")
        page.write_text("<!-- runs quickly -->\n```\ntrue\n```\n")
        check(1, "docs/bad.md:1: not a mark: <!-- runs quickly -->")
        page.write_text("<!-- runs -->\nNo command.\n")
        check(1, "docs/bad.md:1: the mark has no command behind it")
        page.write_text("<!-- file x -->\nNo block.\n")
        check(1, "docs/bad.md:1: no fenced block behind it")
    print("\n".join(problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
