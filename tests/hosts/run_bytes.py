#!/usr/bin/env python3
"""Random arguments and variables, of any bytes but NUL, empty and long ones among them: each rank has to get them as
they were given. A rank is a shell that prints a hash of what it got. Agents run here (exec); with --ssh on hosts made of
namespaces.

  run_bytes.py SMP_LAUNCH SOURCE_DIR [--sets N] [--ssh N] [--seed S]
"""
import argparse
import hashlib
import os
import pathlib
import random
import subprocess
import sys

from namespace_hosts import Hosts

LONGEST = (128 << 10) - len("FUZZ_39=") - 1  # the kernel takes no longer text: MAX_ARG_STRLEN
SETS_A_JOB = 50  # a rank each: starting smp-launch for every set would measure that
NASTY = [b"", b" ", b"$HOME", b"`x`", b"'", b'"', b"\\", b"*", b"\n", b"\r", b"\xff\xfe", b"--", b"-n", b"=", b"{rank}",
         b"\x1esmp-agent\x1e", b"%s", b"~", b"!!", b"\t", b"#"]


# A job has one set of arguments, cut into parts of four: each of its ranks takes its own.
RANK = r"""shift $((4 * RANK)); export LC_ALL=C
{ for i in 1 2 3 4; do printf '%s\0' "$1"; shift; done; env -0 | grep -az ^FUZZ_ | sort -z; } | sha256sum"""


def digest(words):
    return hashlib.sha256(b"".join(word + b"\0" for word in words)).hexdigest()


def text(chance):
    kind = chance.random()
    if kind < 0.4:
        return chance.choice(NASTY)
    if kind < 0.5:
        return b"".join(chance.choice(NASTY) for _ in range(chance.randrange(12)))
    size = chance.randrange(64) if kind < 0.97 else chance.randrange(LONGEST)
    return (bytes(chance.randrange(1, 256) for _ in range(min(size, 300))) * (1 + size // 300))[:size]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("launch")
    parser.add_argument("source")
    parser.add_argument("--sets", type=int, default=100_000)
    parser.add_argument("--ssh", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)

    def sweep(what, hosts, sets):
        wrong = done = 0
        while done < sets:
            arguments = [text(chance) for _ in range(min(SETS_A_JOB, sets - done) * 4)]
            values = {b"FUZZ_%d" % i: text(chance) for i in range(chance.randrange(1, 40))}
            ranks = len(arguments) // 4
            expected = sorted(name + b"=" + value for name, value in values.items())
            named = [word for name in values for word in ("--env", name.decode())]
            job = subprocess.run(
                [options.launch, *hosts(ranks), *named, "--show-ranks", "all", "--prefix", "{rank} ", "--", "/bin/sh", "-c",
                 RANK, "rank", *arguments], capture_output=True, env={**os.environb, **values}, timeout=120)
            shown = dict(line.split()[:2] for line in job.stdout.decode().splitlines())
            for rank in range(ranks):
                if shown.get(str(rank)) != digest(arguments[4 * rank:4 * rank + 4] + expected):
                    wrong += 1
                    print(f"rank {rank} of job {done // SETS_A_JOB}: {job.stderr.decode(errors='replace')[:500]}")
            done += ranks
        print(f"{'ok  ' if wrong == 0 else 'FAIL'}  {what}: {done} sets of arguments and variables, {wrong} not as given",
              flush=True)
        return wrong == 0

    def on_agents(ranks):
        slots = [f"{name}:{count}" for name, count in (("a", ranks // 2), ("b", ranks - ranks // 2)) if count]
        return ["--hosts", ",".join(slots), "--via", "exec:exec $SMP_AGENT --agent"]

    good = sweep("exec", on_agents, options.sets)
    if options.ssh:
        hosts = Hosts(pathlib.Path(options.source, "scripts/namespace-hosts"), 2)
        try:
            good = sweep("ssh", lambda ranks: ["--hosts", f"h1:{ranks - ranks // 2},h2:{max(ranks // 2, 1)}", "--ssh-args",
                                               f"-F {hosts.folder}/ssh_config"], options.ssh) and good
        finally:
            hosts.down()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
