"""Runs work on all cores in processes, because converting tokens of `tokenizers` to numbers holds Python's lock.
Results come in the order of the pieces. Few pieces are in progress at once, so memory does not grow with the corpus."""
import collections
import concurrent.futures
import ctypes
import multiprocessing
import os
import signal

from smp_data.errors import Failure

_work = None


def _begin(parent, work):
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a worker ends when its parent is killed
    if os.getppid() != parent:  # the parent was killed before prctl
        os._exit(1)
    _work = work


def _call(piece):
    return _work(piece)


def _nothing():
    pass


class Workers:
    """`count` processes that call work(piece). They are started at once, before this process has threads."""

    def __init__(self, count, work):
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread in each process
        self.count = count
        self.pool = concurrent.futures.ProcessPoolExecutor(
            count, multiprocessing.get_context("fork"), initializer=_begin,
            initargs=(os.getpid(), work))
        self.pool.submit(_nothing).result()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.pool.shutdown(wait=True, cancel_futures=True)

    def results(self, pieces):
        """Yields (piece, work(piece)) in the order of the pieces. An exception of a piece is raised at its turn."""
        waiting = collections.deque()
        try:
            for piece in pieces:
                waiting.append((piece, self.pool.submit(_call, piece)))
                if len(waiting) >= 2 * self.count + 1:
                    piece, future = waiting.popleft()
                    yield piece, future.result()
            while waiting:
                piece, future = waiting.popleft()
                yield piece, future.result()
        except concurrent.futures.process.BrokenProcessPool:
            raise Failure("a worker process was killed; if memory ran out, lower --workers; "
                          "the same command continues after the last complete file") from None


def cores():
    return len(os.sched_getaffinity(0))
