"""Progress of a command on standard error: one line that is rewritten on a terminal, else a line every 10 s."""
import sys
import time


def clock(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


class Progress:
    def __init__(self, total_bytes, done_bytes=0, stream=sys.stderr):
        self.total, self.done, self.first = total_bytes, done_bytes, done_bytes
        self.stream, self.live = stream, stream.isatty()
        self.started = self.last = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.started

    def speed(self):
        """MB/s (10^6 bytes of input) since the command began."""
        return (self.done - self.first) / 1e6 / max(self.seconds(), 1e-9)

    def add(self, read_bytes, tokens):
        self.done += read_bytes
        now = time.monotonic()
        if now - self.last < (0.2 if self.live else 10):
            return
        self.last = now
        left = (self.total - self.done) / 1e6 / max(self.speed(), 1e-9)
        line = (f"{100 * self.done / max(self.total, 1):3.0f} %  {self.done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB  "
                f"{self.speed():.1f} MB/s  {tokens:,} tokens  {clock(left)} left")
        self.stream.write(f"\r\x1b[K{line}" if self.live else f"smp-data: {line}\n")
        self.stream.flush()

    def clear(self):
        if self.live:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
