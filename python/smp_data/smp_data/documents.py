"""Reads the documents of a piece."""
import json

import numpy as np
import pyarrow

from smp_data.errors import BadInput
from smp_data.inputs import open_parquet

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def lines(piece):
    """(offset, bytes without the line end) of each line that begins in a piece and is not blank."""
    with open(piece.path, "rb") as file:
        begin = piece.begin
        if begin > 0:
            file.seek(begin - 1)
            begin += len(file.readline()) - 1  # the rest of a line that began before
        data = file.read(max(piece.end - begin, 0))
        if data and not data.endswith(b"\n"):
            data += file.readline()
    offset = begin
    if offset == 0 and data.startswith(BYTE_ORDER_MARK):
        offset, data = len(BYTE_ORDER_MARK), data[len(BYTE_ORDER_MARK):]
    for line in data.split(b"\n"):
        if line and not line.isspace():
            yield offset, line.removesuffix(b"\r")
        offset += len(line) + 1


def bad_line(piece, offset, text):
    """The error of the line that begins at an offset of a piece's file."""
    number = 1
    with open(piece.path, "rb") as file:
        while offset > 0:
            block = file.read(min(offset, 1 << 20))
            if not block:
                break
            number += block.count(b"\n")
            offset -= len(block)
    return BadInput(f"{piece.path}:{number}", text)


def objects(piece):
    """(offset, object) of each line of JSON in a piece."""
    for offset, line in lines(piece):
        try:
            found = json.loads(line)
        except UnicodeDecodeError as error:
            raise bad_line(piece, offset, f"not UTF-8: byte {error.start + 1} of the line") from None
        except RecursionError:
            raise bad_line(piece, offset, "the JSON nests too deeply") from None
        except ValueError as error:
            what = f"{error.msg} at column {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise bad_line(piece, offset, f"not valid JSON: {what}") from None
        if not isinstance(found, dict):
            raise bad_line(piece, offset, "not a JSON object: expected one object a line")
        yield offset, found


def _joined(texts):
    return b"".join(texts), np.cumsum([0, *map(len, texts)], dtype=np.int64)


def _json_documents(piece, key):
    texts = []
    for offset, found in objects(piece):
        if key not in found:
            raise bad_line(piece, offset, f"no key '{key}'; the keys are {', '.join(found) or 'none'} (--json-key)")
        if not isinstance(found[key], str):
            raise bad_line(piece, offset, f"'{key}' is not a string but {json.dumps(found[key])[:40]}")
        try:
            texts.append(found[key].encode())
        except UnicodeEncodeError:
            raise bad_line(piece, offset, f"'{key}' has an unpaired surrogate, which UTF-8 cannot encode") from None
    return _joined(texts)


def _line_documents(piece):
    texts = []
    for offset, line in lines(piece):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            raise bad_line(piece, offset, f"not UTF-8: byte {error.start + 1} of the line") from None
        texts.append(line)
    return _joined(texts)


def _text_document(piece):
    with open(piece.path, "rb") as file:
        file.seek(piece.begin)
        data = file.read(piece.end - piece.begin)
    if piece.begin == 0:
        data = data.removeprefix(BYTE_ORDER_MARK)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        place = error.start
        line_begin = piece.begin + data.rfind(b"\n", 0, place) + 1
        raise bad_line(piece, line_begin, f"not UTF-8: byte {piece.begin + place:,} of the file") from None
    return _joined([data])


def _row_documents(piece, column):
    try:
        table = open_parquet(piece.path, column).read_row_groups(range(piece.begin, piece.end), [column], use_threads=False)
        rows = table.column(0).cast(pyarrow.large_string())
        for chunk in rows.chunks:
            chunk.validate(full=True)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise BadInput(piece.path, f"row group {piece.begin}: {str(error).splitlines()[0]}") from None
    texts = []
    for chunk in rows.chunks:
        if chunk.null_count:
            missing = int(np.flatnonzero(chunk.is_null())[0]) + sum(map(len, texts))
            raise BadInput(piece.path, f"row {missing} of row group {piece.begin}: '{column}' is null")
        texts.append(chunk)
    joined = pyarrow.concat_arrays(texts) if texts else pyarrow.array([], pyarrow.large_string())
    if len(joined) == 0:
        return b"", np.zeros(1, np.int64)
    _, offsets, data = joined.buffers()
    starts = np.frombuffer(offsets, np.int64, len(joined) + 1, joined.offset * 8)
    return data[int(starts[0]):int(starts[-1])].to_pybytes() if data else b"", starts - starts[0]


def read(piece, key):
    """The documents of a piece: UTF-8 bytes, and their starts int64 [documents + 1], the last one being the end."""
    if piece.kind == "json":
        return _json_documents(piece, key)
    if piece.kind == "lines":
        return _line_documents(piece)
    if piece.kind == "text":
        return _text_document(piece)
    return _row_documents(piece, key)
