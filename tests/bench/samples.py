"""Samples as smp-bench takes them, for its peers: of ranks that have met for a while, each about 20 ms long."""
import time

SAMPLE_S, SETTLING_S = 0.02, 0.3


def let_settle(slowest):
    """`slowest(seconds)`: the most of all ranks."""
    start = time.perf_counter()
    while slowest(time.perf_counter() - start) < SETTLING_S:
        pass


def calls_of_a_sample(seconds_of):
    """Batches grow until one takes about as long as a sample. `seconds_of(calls)`: of the slowest rank."""
    calls, is_warm = 3, False
    while True:
        wanted = max(1, min(100_000, int(calls * SAMPLE_S / seconds_of(calls))))
        if is_warm and wanted < 2 * calls:
            return wanted
        calls, is_warm = wanted, True
