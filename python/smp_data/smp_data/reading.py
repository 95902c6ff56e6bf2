"""smp-data show and smp-data check: reading a corpus."""
import json
import os
import sys

import numpy as np

from smp_data.corpus import paths_of
from smp_data.errors import BadInput, Usage
from smp_data.indexed import Index
from smp_data.tokenizer import Named

BLOCK = 1 << 22  # tokens at a time
KEYS = {"format": str, "version": int, "tokenizer": dict, "vocab_size": int, "end_of_document": (int, type(None)),
        "dtype": str, "tokens": int, "documents": int, "has_mask": bool, "sources": list, "longest_document": int}


class Written:
    """A corpus on disk. manifest, index; tokens and masks (or None) are mapped."""

    def __init__(self, prefix):
        for suffix in (".smp.json", ".bin", ".idx"):
            prefix = prefix.removesuffix(suffix)
        self.paths = paths_of(prefix)
        for kind in ("smp.json", "idx", "bin"):
            if not os.path.exists(self.paths[kind]):
                unfinished = os.path.exists(f"{prefix}.state.json")
                raise BadInput(self.paths[kind], "no such file" + (
                    "; the corpus is not finished: run the command that started it again" if unfinished else ""))
        self.manifest = self._manifest(self.paths["smp.json"])
        self.index = Index(self.paths["idx"])
        self.tokens = self._mapped("bin", self.index.dtype)
        self.masks = self._mapped("mask.bin", np.uint8) if self.manifest["has_mask"] else None

    @staticmethod
    def _manifest(path):
        try:
            with open(path) as file:
                manifest = json.load(file)
            if manifest["format"] != "smp-data":
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise BadInput(path, "not a manifest of smp-data") from None
        if manifest["version"] != 1:
            raise BadInput(path, f"version {manifest['version']} of the manifest is not supported; expected 1")
        for key, kind in KEYS.items():
            if not isinstance(manifest.get(key), kind):
                raise BadInput(path, f"'{key}' is missing or invalid")
        return manifest

    def _mapped(self, kind, dtype):
        path = self.paths[kind]
        if not os.path.exists(path):
            raise BadInput(path, "no such file, although the manifest lists masks")
        size = os.path.getsize(path)
        if size % np.dtype(dtype).itemsize:
            raise BadInput(path, f"{size:,} bytes is not a multiple of the size of {np.dtype(dtype).name}")
        return np.memmap(path, dtype, "r") if size else np.zeros(0, dtype)


def check(options):
    written = Written(options.prefix)
    manifest, index, paths = written.manifest, written.index, written.paths
    index.check(paths["bin"])
    found = {"dtype": index.dtype.name, "tokens": len(written.tokens), "documents": len(index.lengths),
             "longest_document": int(max(index.lengths, default=0))}
    for key, value in found.items():
        if manifest[key] != value:
            raise BadInput(paths["smp.json"], f"{key} {manifest[key]!r}; the files have {value!r}")
    if written.masks is not None and len(written.masks) != len(written.tokens):
        raise BadInput(paths["mask.bin"], f"{len(written.masks):,} bytes; there are {len(written.tokens):,} tokens")
    counted = 0
    for begin in range(0, len(written.tokens), BLOCK):
        block = written.tokens[begin:begin + BLOCK]
        wrong = np.flatnonzero((block < 0) | (block >= manifest["vocab_size"]))
        if len(wrong):
            place = begin + int(wrong[0])
            document = int(np.searchsorted(index.pointers, place * index.dtype.itemsize, "right")) - 1
            raise BadInput(paths["bin"], f"token {block[wrong[0]]} at {place:,}, in document {document:,}; the last id "
                                         f"of the vocabulary is {manifest['vocab_size'] - 1:,}")
        if written.masks is not None:
            mask = written.masks[begin:begin + BLOCK]
            if (mask > 1).any():
                raise BadInput(paths["mask.bin"], f"byte {begin + int(np.argmax(mask > 1)):,} is neither 0 nor 1")
            counted += int(mask.sum())
    end = manifest["end_of_document"]
    for begin in range(0, len(index.lengths) if end is not None else 0, BLOCK):
        block = slice(begin, begin + BLOCK)
        last = written.tokens[index.pointers[block] // index.dtype.itemsize + index.lengths[block] - 1]
        if (last != end).any():
            raise BadInput(paths["bin"], f"document {begin + int(np.argmax(last != end)):,} does not end with token {end}")
    masks = f", {counted:,} counted" if written.masks is not None else ""
    print(f"{paths['bin']}: complete: {found['tokens']:,} tokens{masks} of {found['documents']:,} documents, "
          f"{found['dtype']}, all below {manifest['vocab_size']:,}")


def _tokenizer(written, name):
    """The tokenizer of a corpus, whose hash must be the manifest's."""
    wanted = written.manifest["tokenizer"]
    try:
        named = Named(name or wanted["name"])
    except BadInput as error:
        raise Usage(f"the tokenizer of this corpus: {error}; give its path with --tokenizer") from None
    if named.sha256 != wanted["sha256"]:
        raise Usage(f"--tokenizer {name or wanted['name']}: another tokenizer made this corpus ({wanted['name']}, sha256 "
                    f"{wanted['sha256'][:12]}...)")
    return named


def _runs(mask):
    """(begin, end, 0 or 1) of each run of equal masks."""
    places = [0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), len(mask)]
    return [(a, b, int(mask[a])) for a, b in zip(places[:-1], places[1:])]


def show(options):
    written = Written(options.prefix)
    documents = len(written.index.lengths)
    if not 0 <= options.document < documents:
        raise Usage(f"--document {options.document}: the corpus has documents 0 to {documents - 1:,}")
    named = _tokenizer(written, options.tokenizer)
    length = int(written.index.lengths[options.document])
    begin = int(written.index.pointers[options.document]) // written.index.dtype.itemsize
    tokens = written.tokens[begin:begin + length].tolist()
    decode = lambda ids: named.tokenizer.decode(ids, skip_special_tokens=False)
    print(f"document {options.document:,} of {documents:,}: {length:,} tokens, the first at position {begin:,} of the corpus")
    print("ids   " + " ".join(map(str, tokens)))
    if written.masks is None:
        print("text  " + decode(tokens))
        return
    mask = np.asarray(written.masks[begin:begin + length])
    opened, closed = ("\x1b[1;32m", "\x1b[0m") if sys.stdout.isatty() else ("[[", "]]")
    print(f"{int(mask.sum()):,} tokens count in the loss: {opened}so{closed}")
    print("text  " + "".join(f"{opened}{decode(tokens[a:b])}{closed}" if counts else decode(tokens[a:b])
                             for a, b, counts in _runs(mask)))
