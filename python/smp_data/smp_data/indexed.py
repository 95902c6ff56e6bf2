"""Megatron's indexed dataset, version 1: PREFIX.bin holds the tokens, one after another, PREFIX.idx where sequences lie.
The index, little-endian: `MMIDIDX\\0\\0`, u64 version, u8 code of the tokens' type, u64 sequences, u64 entries of the
document index, then i32 tokens of each sequence, i64 first byte of each, i64 document index (first sequence of each
document, and the number of sequences at its end). Source: megatron/core/datasets/indexed_dataset.py.

Here a document is one sequence, so the document index counts 0, 1, 2 ... Nothing is kept that grows with the corpus."""
import os
import struct

import numpy as np

from smp_data.errors import BadInput

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
CODES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float32, 8: np.uint16}
BLOCK = 1 << 20  # entries at a time


def code_of(dtype):
    return next(code for code, known in CODES.items() if known == np.dtype(dtype))


def write_index(file, lengths, dtype):
    """Writes the index of sequences of `lengths` tokens (int32 [sequences]) of `dtype` to an open binary file."""
    itemsize = np.dtype(dtype).itemsize
    file.write(HEADER.pack(MAGIC, 1, code_of(dtype), len(lengths), len(lengths) + 1))
    blocks = [slice(begin, begin + BLOCK) for begin in range(0, len(lengths), BLOCK)]
    for block in blocks:
        file.write(lengths[block].astype("<i4").tobytes())
    first = 0
    for block in blocks:
        ends = first + np.cumsum(lengths[block], dtype=np.int64) * itemsize
        file.write(np.concatenate([[first], ends[:-1]]).astype("<i8").tobytes())
        first = int(ends[-1])
    for begin in range(0, len(lengths) + 1, BLOCK):
        file.write(np.arange(begin, min(begin + BLOCK, len(lengths) + 1), dtype="<i8").tobytes())


class Index:
    """An index as it lies on disk. lengths: int32 [sequences]; pointers: int64 [sequences], bytes; documents: int64."""

    def __init__(self, path):
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            header = file.read(HEADER.size)
        if len(header) < HEADER.size or header[:9] != MAGIC:
            raise BadInput(path, "not a Megatron index: the file does not begin with MMIDIDX")
        _, version, code, sequences, entries = HEADER.unpack(header)
        if version != 1:
            raise BadInput(path, f"version {version} of the index is not supported; expected 1")
        if code not in CODES:
            raise BadInput(path, f"{code} is not the code of a token type; expected 1 to 8")
        expected = HEADER.size + 12 * sequences + 8 * entries
        if size != expected:
            raise BadInput(path, f"{size:,} bytes; {sequences:,} sequences and {entries:,} entries of the document index "
                                 f"take {expected:,}")
        self.path, self.dtype = path, np.dtype(CODES[code])
        place = HEADER.size
        self.lengths = self._part("<i4", sequences, place)
        self.pointers = self._part("<i8", sequences, place + 4 * sequences)
        self.documents = self._part("<i8", entries, place + 12 * sequences)

    def _part(self, kind, count, offset):
        if count == 0:
            return np.zeros(0, kind)
        return np.memmap(self.path, kind, "r", offset, (count,))

    def check(self, bin_path):
        """Compares lengths, pointers, document index and the size of the tokens' file."""
        end = 0
        for begin in range(0, len(self.lengths), BLOCK):
            lengths = np.asarray(self.lengths[begin:begin + BLOCK], np.int64)
            ends = end + np.cumsum(lengths) * self.dtype.itemsize
            expected = np.concatenate([[end], ends[:-1]])
            wrong = np.flatnonzero((lengths <= 0) | (self.pointers[begin:begin + BLOCK] != expected))
            if len(wrong):
                i = wrong[0]
                raise BadInput(self.path, f"sequence {begin + i:,}: {lengths[i]:,} tokens from byte "
                                          f"{self.pointers[begin + i]:,}; the previous sequence ends at byte {expected[i]:,}")
            end = int(ends[-1])
        if len(self.documents) != len(self.lengths) + 1 or any(
                not np.array_equal(self.documents[begin:begin + BLOCK],
                                   np.arange(begin, min(begin + BLOCK, len(self.documents))))
                for begin in range(0, len(self.documents), BLOCK)):
            raise BadInput(self.path, "the document index does not map each sequence to one document, as smp-data requires")
        if os.path.getsize(bin_path) != end:
            raise BadInput(bin_path, f"{os.path.getsize(bin_path):,} bytes; the index says {end:,}")
