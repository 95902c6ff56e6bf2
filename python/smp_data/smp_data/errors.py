"""Errors that end a command with one line, and the exit codes, which are those of all smp programs."""

USAGE, BAD_INPUT, FAILURE, INTERRUPTED = 2, 3, 1, 130


class Usage(Exception):
    """The command line cannot be followed."""


class BadInput(Exception):
    """An input is broken: its place (file, or file:line) and what is wrong there."""

    def __init__(self, place, text):
        super().__init__(place, text)  # both, so that it travels between processes
        self.place, self.text = str(place), text

    def __str__(self):
        return f"{self.place}: {self.text}"


class Failure(Exception):
    """Something outside of the input: a worker was killed, a disk is full."""
