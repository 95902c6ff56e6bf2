"""What smp's collectives inside a host shall reach beside gloo, MPI and the copies of memory, and tables of it."""
import dataclasses

SIZES = [4 << 10, 256 << 10, 4 << 20, 64 << 20]
LONG = SIZES[2:]  # of 16-bit numbers
OPS = ["all_gather", "reduce_scatter", "all_reduce"]
HALVES = ["bf16", "fp16"]
WAYS = ["staged", "direct"]  # buffers in private memory, and in memory that peers read in place

# Of each table, number of ranks and call: (staged, direct) at each size. Other numbers of ranks have no targets.
GLOO = {
    2: {"all_gather": ((50, 50), (12, 25), (8, 12), (3.5, 5)),
        "reduce_scatter": ((50, 50), (12, 25), (8, 12), (4, 7)),
        "all_reduce": ((50, 50), (12, 15), (8, 15), (4, 7))},
    4: {"all_gather": ((50, 50), (30, 30), (10, 15), (4, 4.5)),
        "reduce_scatter": ((50, 50), (30, 30), (8, 20), (4, 8)),
        "all_reduce": ((25, 25), (25, 25), (8, 15), (5, 7))},
}
MPI = {
    2: {"all_gather": ((1, 1.5), (1, 1.8), (1.1, 1.5), (1.2, 1.6)),
        "reduce_scatter": ((1.5, 1.5), (2, 4), (2, 3.5), (4, 7)),
        "all_reduce": ((1.3, 1.3), (1.3, 1.6), (1.4, 2.5), (3, 5))},
    4: {"all_gather": ((1.2, 1.2), (1.2, 1.8), (1.5, 2), (1.4, 1.6)),
        "reduce_scatter": ((1.2, 1.2), (5, 15), (3, 8), (2.5, 5)),
        "all_reduce": ((1, 1), (1.5, 2), (1.7, 3), (3.5, 5))},
}
# T3 is measured by what the C library and stores around the cache do, as its targets were; `smp_copies` knows others.
PLAIN_COPIES = ["memcpy", "around the cache"]
LIMIT = {  # percent
    2: {"all_gather": (None, (25, 75), (30, 85), (38, 75)),
        "reduce_scatter": (None, (25, 60), (30, 85), (38, 75)),
        "all_reduce": (None, (25, 30), (30, 60), (38, 70))},
    4: {"all_gather": (None, (15, 40), (30, 85), (38, 75)),
        "reduce_scatter": (None, (15, 30), (30, 85), (38, 75)),
        "all_reduce": (None, (15, 25), (30, 60), (38, 70))},
}
# The time of as many bytes in 16 bits over that in fp32, at most; of both ways and of all numbers of ranks.
HALF = {4 << 20: 1.3, 64 << 20: 1.1}


@dataclasses.dataclass
class Cell:
    figure: float
    target: float = None
    at_most: bool = False
    floor: float = None  # a target above this asks for less time than copies of as many bytes take

    def is_missed(self):
        if self.target is None:
            return False
        return self.figure > self.target if self.at_most else self.figure < self.target

    def is_below_a_copy(self):
        return self.is_missed() and self.floor is not None and self.target > self.floor


@dataclasses.dataclass
class Table:
    name: str
    title: str
    unit: str
    sizes: list
    rows: dict = dataclasses.field(default_factory=dict)  # (call, way) -> a cell or None for each size

    def missed(self):
        return sum(cell is not None and cell.is_missed() for row in self.rows.values() for cell in row)

    def below_a_copy(self):
        return sum(cell is not None and cell.is_below_a_copy() for row in self.rows.values() for cell in row)

    def counted(self):
        return sum(cell is not None and cell.target is not None for row in self.rows.values() for cell in row)


def shares_of_copies(op, ranks, way="direct"):
    """Bytes that a rank must move, of its full buffer, in memory that peers read in place, or to a place that they
    read and from there; two CPUs copy for all."""
    own, scatter = 1 / ranks, (1 + 1 / ranks) / 2
    moved = {"all_gather": 1, "reduce_scatter": scatter, "all_reduce": scatter + 1 - own}
    staged = {"all_gather": own, "reduce_scatter": 1 - own, "all_reduce": 1}
    return (moved[op] + (staged[op] if way == "staged" else 0)) * ranks / 2


def of_peer(name, title, unit, ranks, targets, figure, floor=None):
    """`figure` and `floor` of a call, a size and a way."""
    table = Table(name, title, unit, SIZES)
    for op in OPS:
        for at, way in enumerate(WAYS):
            known = targets.get(ranks, {}).get(op, (None,) * len(SIZES))
            table.rows[op, way] = [
                None if name == "T3" and size == SIZES[0] else
                Cell(figure(op, size, way), known[i][at] if known[i] else None, floor=floor and floor(op, size, way))
                for i, size in enumerate(SIZES)]
    return table


def gloo_table(title, ranks, seconds, floor=None):
    """T1, of "gloo", "staged" and "direct" by call and size."""
    return of_peer("T1", title, "x", ranks, GLOO,
                   lambda op, size, way: seconds["gloo"][op][size] / seconds[way][op][size], floor)


def tables(ranks, seconds):
    """`seconds`: of "gloo" and "MPI" (the best) where they were measured, and of "staged" and "direct", by call and
    size; of "copies", the quickest, and "plain copies" by size; "ratios" of "direct bf16" and so on to fp32 by call
    and long size."""
    found = []

    def limit(op, size, way="direct", copies="copies"):
        return shares_of_copies(op, ranks, way) * seconds[copies][size]

    def floor(library):
        return lambda op, size, way: seconds[library][op][size] / limit(op, size, way)

    if "gloo" in seconds:
        found.append(gloo_table("gloo / smp", ranks, seconds, floor("gloo")))
    if "MPI" in seconds:
        found.append(of_peer("T2", "best MPI / smp", "x", ranks, MPI,
                             lambda op, size, way: seconds["MPI"][op][size] / seconds[way][op][size], floor("MPI")))
    found.append(of_peer("T3", "share of what two processes could do by plain copies", " %", ranks, LIMIT,
                         lambda op, size, way: 100 * limit(op, size, copies="plain copies") / seconds[way][op][size]))
    half = Table("T6", "16 bits / fp32, the same bytes", "x", LONG)
    for op in OPS[1:]:
        for way in WAYS:
            for dtype in HALVES:
                half.rows[f"{op} {dtype}", way] = [
                    Cell(seconds["ratios"][f"{way} {dtype}"][op][size], HALF[size], True) for size in LONG]
    return found + [half]


def text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def short(figure):
    return f"{figure:.2f}" if figure < 9.995 else f"{figure:.1f}" if figure < 99.95 else f"{figure:,.0f}"


def words(cell, unit, markdown):
    if cell is None:
        return "-"
    figure = short(cell.figure) + unit
    if cell.target is None:
        return figure
    mark = ("**{}**" if markdown else "{} MISSED") if cell.is_missed() else "{}"
    below = ", below a copy" if cell.is_below_a_copy() else ""
    return mark.format(f"{figure} ({'<=' if cell.at_most else '>='} {cell.target:g}{below})")


def printed(lines, markdown):
    """Lines of cells as a table; the first is its head."""
    if markdown:
        head, *rows = [f"| {' | '.join(line)} |" for line in lines]
        return "\n".join([head, "|---" * len(lines[0]) + "|", *rows])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) if i < 1 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))) for line in lines)


def target_table(table, markdown):
    lines = [[f"{table.name}: {table.title}", *map(text, table.sizes)]]
    for (call, way), row in table.rows.items():
        lines.append([f"{call}, {way}", *(words(cell, table.unit, markdown) for cell in row)])
    return printed(lines, markdown)


def time_table(seconds, markdown, best_mpi=None):
    """Microseconds of a call, of what was measured; `best_mpi` names the quickest by call and size."""
    lines = [["us of a call", *map(text, SIZES)]]
    for op in OPS:
        for library in [*WAYS, "gloo", "MPI"]:
            if library not in seconds:
                continue
            row = [short(seconds[library][op][size] * 1e6) for size in SIZES]
            if library == "MPI":
                row = [f"{time}, {best_mpi[op][size]}" for time, size in zip(row, SIZES)]
            lines.append([f"{op}, {'best MPI' if library == 'MPI' else library}", *row])
    for library, name in (("plain copies", "a plain copy by two processes"), ("copies", "the quickest copy")):
        if library in seconds:
            lines.append([name, *(short(seconds[library][size] * 1e6) for size in SIZES)])
    return printed(lines, markdown)
