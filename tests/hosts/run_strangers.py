#!/usr/bin/env python3
"""Strangers at the rendezvous of a start by hand: while a host waits for the second one, others connect who do not
know the key. All of them are refused, and the job then runs as if nobody had come.

  run_strangers.py SMP_LAUNCH [--strangers N] [--silent N] [--seed S]
"""
import argparse
import os
import pathlib
import random
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("launch")
parser.add_argument("--strangers", type=int, default=100)
parser.add_argument("--silent", type=int, default=4000, help="more of them that stay and say nothing")
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
random.seed(options.seed)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
OPEN_AT_ONCE = 200

PROTOCOL = b"SMPHOST2"


def held_port():
    """A socket with a port that nobody else is given, though who listens may bind it too, with SO_REUSEADDR."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held


def words_of_a_stranger():
    """What it says, and whether it stays: nothing, another protocol, ours with an answer that is made up, much."""
    kind = random.randrange(6)
    if kind == 0:
        return b"", True
    if kind == 1:
        return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True
    if kind == 2:
        return PROTOCOL + random.randbytes(random.randrange(200)), True
    if kind == 3:
        return random.randbytes(random.randrange(1, 4096)), True
    if kind == 4:
        return struct.pack("<I", 2**31) * 8, True
    return b"", False


def start(folder, rank, port, key):
    return subprocess.Popen([options.launch, "--nnodes", "2", "--node-rank", str(rank), "--rendezvous",
                             f"127.0.0.1:{port}", "--key-file", key, "--connect-timeout", "120s", "-n", "4",
                             "--show-ranks", "all", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


with tempfile.TemporaryDirectory() as folder:
    key = str(pathlib.Path(folder, "key"))
    pathlib.Path(key).write_text("a secret of the test's own\n")
    os.chmod(key, 0o600)
    held = held_port()
    port = held.getsockname()[1]
    first = start(folder, 0, port, key)
    kept, come, answered = [], 0, 0
    deadline = time.monotonic() + 200
    while come < options.strangers:
        assert time.monotonic() < deadline, f"only {come} strangers came in time"
        stranger = socket.socket()
        stranger.settimeout(5)
        try:
            stranger.connect(("127.0.0.1", port))
        except OSError:  # it does not listen yet, or its queue is full
            assert first.poll() is None, first.communicate()
            time.sleep(0.005)
            continue
        come += 1
        words, stays = words_of_a_stranger()
        try:
            stranger.sendall(words)
        except OSError:
            pass  # refused while it spoke
        if stays:
            kept.append(stranger)
        else:
            stranger.close()
        if len(kept) > OPEN_AT_ONCE:
            kept.pop(random.randrange(len(kept))).close()
    for _ in range(options.silent):
        silent = socket.socket()
        silent.settimeout(60)
        silent.connect(("127.0.0.1", port))
        kept.append(silent)
    began = time.monotonic()
    second = start(folder, 1, port, key)
    out, errors = first.communicate(timeout=200)
    second_out, second_errors = second.communicate(timeout=200)
    took = time.monotonic() - began
    assert took < 6, f"silent strangers kept a host out for {took:.1f} s"
    assert first.returncode == 0 and second.returncode == 0, (first.returncode, errors, second.returncode, second_errors)
    assert sorted(out.splitlines()) == [f"[{rank}] {rank} of 4" for rank in range(4)], out
    for stranger in kept:
        stranger.settimeout(5)
        try:
            while data := stranger.recv(4096):
                told = data.replace(PROTOCOL, b"")  # which whoever greets in full is told, to say so to another version
                answered += b"SMP" in told or b"KEY" in told
        except OSError:
            pass
    assert answered == 0, "a stranger was told of the job"
    print(f"{come} strangers were refused, {options.silent} said nothing; then the job of 2 hosts ran in {took:.2f} s")
