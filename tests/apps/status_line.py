#!/usr/bin/env python3
"""The status line of smp-launch as somebody at a terminal sees it: one line, the last, of the terminal's width, above
which the ranks' lines scroll whole. A terminal of 60 columns becomes one of 30, then of 120.

  status_line.py SMP_PLAN SMP_LAUNCH JOB
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

plan_program, launch, job = sys.argv[1:]
STATUS = re.compile(r"^\d/\d ranks")
COLOUR = re.compile(r"\x1b\[\d*m")
RANKS_LINE = re.compile(r"^\[0\] step +\d+/\d+  loss .*")


class Screen:
    """What stands on the terminal: finished lines, and the one that is being written."""

    def __init__(self):
        self.lines, self.open, self.widths = [], "", []

    def feed(self, text, columns):
        for part in re.split(r"(\r\x1b\[K|\r?\n)", COLOUR.sub("", text)):
            if part == "\r\x1b[K":
                self.open = ""
            elif part in ("\n", "\r\n"):
                self.lines.append(self.open)
                self.open = ""
            else:
                self.open += part
                if STATUS.match(self.open):
                    self.widths.append((columns, len(self.open), self.open))


def set_columns(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def main():
    with tempfile.TemporaryDirectory() as folder:
        plan = folder + "/plan.yaml"
        subprocess.run([plan_program, job, "-o", plan, "--set", "training.steps=20000"], check=True, capture_output=True)
        parent, child = pty.openpty()
        columns = 60
        set_columns(child, columns)
        launched = subprocess.Popen([launch, "--show-ranks", "all", "--run-dir", folder + "/run", plan], stdout=child,
                                    stderr=child, stdin=subprocess.DEVNULL)
        os.close(child)
        screen, told, waiting = Screen(), "", b""
        changes = [30, 120]
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            if not select.select([parent], [], [], 1)[0]:
                continue
            try:
                got = os.read(parent, 65536)
            except OSError:  # the terminal's other side is closed
                break
            waiting += got
            # An escape sequence may come in two pieces.
            cut = waiting.rfind(b"\r")
            whole = len(waiting) if cut < 0 or len(waiting) - cut >= 4 else cut
            screen.feed(waiting[:whole].decode(), columns)
            waiting = waiting[whole:]
            seen = [one for one in screen.widths if one[0] == columns and "step" in one[2]]
            if not told and not changes and len(seen) >= 2:
                told = subprocess.run([launch, "--status", folder + "/run"], capture_output=True, text=True).stdout
            if len(seen) >= 3 and changes:
                columns = changes.pop(0)
                set_columns(parent, columns)
            elif len(seen) >= 3:
                launched.send_signal(signal.SIGTERM)
        code = launched.wait(60)
    screen.feed(waiting.decode(), columns)

    assert code == 128 + signal.SIGTERM, f"exit code {code}: {screen.lines[-5:]}"
    torn = [line for line in screen.lines if "4 ranks  " in line]
    assert not torn, f"a status line was left behind, or in another: {torn[:3]}"
    assert any(RANKS_LINE.match(line) for line in screen.lines), screen.lines
    # The first look after a change may have come before it.
    for width in (60, 30, 120):
        lengths = [length for at, length, _ in screen.widths if at == width][1:]
        assert lengths, f"no status on a terminal of {width} columns"
        assert max(lengths) < width, f"{max(lengths)} characters on a terminal of {width} columns"
    fullest = max((text for _, _, text in screen.widths), key=len)
    for word in ("4/4 ranks  step ", "/20000  loss ", " tokens/s  ", " left"):
        assert word in fullest, f"'{word}' is not in '{fullest}'"
    for word in (": running for ", "  ranks     4 of 4 running\n", "  training  step "):
        assert word in told, f"--status said: {told}"
    print(f"{len(screen.widths)} states of the line, {len(screen.lines)} whole lines above it; fullest: {fullest}")


main()
