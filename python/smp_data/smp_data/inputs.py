"""The inputs of a command: files (shards), cut into pieces that workers read and encode independently.

The suffix of a file gives its kind: .jsonl and .json hold one object a line, .parquet holds rows, all others hold text."""
import collections
import dataclasses
import glob
import hashlib
import os
import pathlib

import pyarrow
import pyarrow.parquet

from smp_data.errors import BadInput, Usage

PIECE_BYTES = 4 << 20
LOOK_BYTES = 1 << 20  # how far a place to cut a text is looked for
WHOLE_HASH_BYTES, SAMPLES, SAMPLE_BYTES = 16 << 20, 64, 256 << 10
IN_FOLDERS = (".jsonl", ".json", ".txt", ".tokens", ".parquet")
NO_TEXT = {".gz": "gunzip", ".zst": "unzstd", ".xz": "unxz", ".bz2": "bunzip2", ".zip": "unzip", ".tar": "tar -x",
           ".bin": None, ".idx": None, ".npy": None, ".npz": None, ".arrow": None, ".pkl": None, ".pt": None}


@dataclasses.dataclass
class Shard:
    """One input file. kind: "json", "parquet", "lines" (of text) or "text" (the file is one document)."""
    path: str
    kind: str
    bytes: int
    mtime_ns: int

    def identity(self):
        """Identifies the content: a hash of a whole small file, or of samples of a large one."""
        found = hashlib.sha256()
        with open(self.path, "rb") as file:
            if self.bytes <= WHOLE_HASH_BYTES:
                found.update(file.read())
            else:
                for i in range(SAMPLES):
                    file.seek((self.bytes - SAMPLE_BYTES) * i // (SAMPLES - 1))
                    found.update(file.read(SAMPLE_BYTES))
        return {"path": self.path, "bytes": self.bytes, "mtime_ns": self.mtime_ns, "sha256": found.hexdigest()}


@dataclasses.dataclass
class Piece:
    """Bytes [begin, end) of a shard: the lines that begin there, or a part of a text; row groups of a parquet file. A
    text file is one document in parts: `opens` and `closes` mark its first and last piece."""
    shard: int
    path: str
    kind: str
    begin: int
    end: int
    bytes: int  # of input, for progress
    opens: bool = True
    closes: bool = True
    last: bool = True  # of its shard


def files_of(arguments):
    """Paths of the files that arguments name. Arguments are files, folders (their files with known suffixes), patterns."""
    paths = []
    for argument in arguments:
        if os.path.isdir(argument):
            found = sorted(str(path) for path in pathlib.Path(argument).rglob("*")
                           if path.suffix in IN_FOLDERS and path.is_file())
            if not found:
                raise BadInput(argument, f"no {', '.join(IN_FOLDERS)} file in this folder; give a pattern for other files")
        elif os.path.exists(argument):
            found = [argument]
        else:
            found = sorted(path for path in glob.glob(argument, recursive=True) if os.path.isfile(path))
            if not found:
                raise BadInput(argument, "no such file")
        paths += found
    twice = [path for path, count in collections.Counter(paths).items() if count > 1]
    if twice:
        raise Usage(f"{twice[0]} is named twice")
    return paths


def shards_of(paths, documents="file", skip_empty=False):
    """Shards of files. documents: whether a document of a text file is the "file" or a "line"."""
    shards = []
    for path in paths:
        suffix = os.path.splitext(path)[1].lower()
        if suffix in NO_TEXT:
            tool = NO_TEXT[suffix]
            raise BadInput(path, f"compressed: {tool} it first" if tool else f"{suffix} files are not text")
        if not os.path.isfile(path):
            raise BadInput(path, "expected a regular file")
        status = os.stat(path)
        if status.st_size == 0:
            if skip_empty:
                continue
            raise BadInput(path, "the file is empty (--skip-empty skips empty files)")
        kind = "json" if suffix in (".jsonl", ".json") else "parquet" if suffix == ".parquet" else \
            "lines" if documents == "line" else "text"
        shards.append(Shard(path, kind, status.st_size, status.st_mtime_ns))
    if not shards:
        raise BadInput(paths[0], "every file is empty")
    return shards


def open_parquet(path, column):
    """Opens a file and checks that its column holds text."""
    try:
        file = pyarrow.parquet.ParquetFile(path, memory_map=True)
    except pyarrow.ArrowInvalid as error:
        raise BadInput(path, f"not a Parquet file: {str(error).splitlines()[0]}") from None
    schema = file.schema_arrow
    if column not in schema.names:
        raise BadInput(path, f"no column '{column}'; the columns are {', '.join(schema.names)} (--json-key)")
    kind = schema.field(column).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise BadInput(path, f"column '{column}' holds {kind}, not text")
    if file.metadata.num_rows == 0:
        raise BadInput(path, "the file has no rows")
    return file


def check_columns(shards, column):
    """Checks all files for the column before the work begins."""
    for shard in shards:
        if shard.kind == "parquet":
            open_parquet(shard.path, column)


def pieces_of(number, shard, column, cutter=None):
    """Pieces of shard `number`, in order. cutter: finds where a text can be cut; with None the text stays whole."""
    if shard.kind == "parquet":
        groups = open_parquet(shard.path, column).metadata.num_row_groups
        cuts = list(range(groups + 1))
        share = [shard.bytes * i // groups for i in cuts]
    elif shard.kind == "text":
        cuts = share = list(_text_cuts(shard, cutter))
    else:
        cuts = share = [*range(0, shard.bytes, PIECE_BYTES), shard.bytes]
    for i in range(len(cuts) - 1):
        last = i == len(cuts) - 2
        yield Piece(number, shard.path, shard.kind, cuts[i], cuts[i + 1], share[i + 1] - share[i],
                    opens=shard.kind != "text" or i == 0, closes=shard.kind != "text" or last, last=last)


def _text_cuts(shard, cutter):
    yield 0
    if cutter is not None and cutter.possible:
        with open(shard.path, "rb") as file:
            place = PIECE_BYTES
            while place < shard.bytes:
                file.seek(place)
                cut = cutter.first_cut(file.read(LOOK_BYTES))
                if cut is None:
                    place += LOOK_BYTES
                elif place + cut < shard.bytes:
                    yield place + cut
                    place += cut + PIECE_BYTES
    yield shard.bytes
