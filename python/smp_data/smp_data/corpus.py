"""Writes a corpus: PREFIX.bin, PREFIX.idx, PREFIX.mask.bin if there are masks, and last the manifest PREFIX.smp.json. A
corpus with a manifest is complete.

Until then tokens, masks and lengths are in files named .partial. PREFIX.state.json records the input file up to which
they are complete. It is written after the .partial files are on disk (fsync). A command that was killed continues from
the state."""
import fcntl
import json
import os
import time

import numpy as np

from smp_data.errors import BadInput, Failure, Usage
from smp_data.indexed import write_index

COUNTED = ("tokens", "documents", "left_out", "longest_document")
LONGEST = (1 << 31) - 1  # tokens of a sequence: the index counts them in int32


def paths_of(prefix):
    return {kind: f"{prefix}.{kind}" for kind in ("bin", "idx", "mask.bin", "smp.json")}


def write_json(path, value):
    """Writes a JSON file atomically."""
    with open(f"{path}.partial", "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.partial", path)


def _sync_folder(path):
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Corpus:
    """A corpus that is being written. options: everything except the inputs that determines its content; a state with
    other options is refused. shards: identities (Shard.identity) of inputs, in order, computed when they are needed."""

    def __init__(self, prefix, options, dtype, masks=False, overwrite=False):
        self.paths, self.prefix, self.options, self.dtype = paths_of(prefix), prefix, options, dtype
        self.state_path = f"{prefix}.state.json"
        self.partial = {kind: f"{prefix}.{kind}.partial" for kind in ("bin", "lengths", *(["mask.bin"] if masks else []))}
        folder = os.path.dirname(prefix) or "."
        if not os.path.isdir(folder):
            raise BadInput(folder, "no such folder")
        self.files = {}
        self.saved_at, self.save_s, self.unsaved = time.monotonic(), 0.0, False
        self.open_tokens = 0  # tokens of a document that is written in parts
        self._lock()
        try:
            self.state = self._state(overwrite)
            if not self.state["finishing"]:
                self._open(overwrite)
            self.now = {key: self.state[key] for key in COUNTED}  # the state is that of the last whole shard
        except BaseException:
            self.__exit__()
            raise

    def _open(self, overwrite):
        there = [path for path in self.paths.values() if os.path.exists(path)]
        if there and not overwrite:
            raise Usage(f"{there[0]} exists; --overwrite replaces it once the new corpus is complete")
        for kind, path in self.partial.items():
            self.files[kind] = open(path, "r+b" if os.path.exists(path) else "w+b")
            if os.path.getsize(path) < self.state[kind]:
                raise BadInput(path, f"shorter than recorded in {self.state_path}; remove {self.state_path} to start again")
            self.files[kind].truncate(self.state[kind])
            self.files[kind].seek(0, os.SEEK_END)

    def _lock(self):
        self.lock_path = f"{self.prefix}.lock"
        self.lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(os.fstat(self.lock), os.stat(self.lock_path))
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:  # another process has the lock, or has just removed it
            os.close(self.lock)
            raise Failure(f"{self.prefix} is being written by another smp-data process")

    def __enter__(self):
        return self

    def __exit__(self, kind=None, *error):
        try:
            if kind is not None and self.unsaved:
                self._save()
        except OSError:  # the disk is full; the last saved state remains valid
            pass
        for file in self.files.values():
            try:
                file.close()
            except OSError:
                pass
        if os.path.exists(self.lock_path):
            os.remove(self.lock_path)
        os.close(self.lock)

    def _state(self, overwrite):
        fresh = {"version": 1, "options": self.options, "finishing": False, "shards": [], **{
            key: 0 for key in (*COUNTED, *self.partial)}}
        if not os.path.exists(self.state_path):
            return fresh
        try:
            with open(self.state_path) as file:
                state = json.load(file)
            known = state["version"] == 1 and state.keys() == fresh.keys()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(self.state_path, "not a state file of smp-data: remove it to start again") from None
        if known and state["options"] == self.options:
            return state
        if overwrite:
            os.remove(self.state_path)
            return fresh
        differing = [key for key in self.options if not known or state["options"].get(key) != self.options[key]]
        what = differing[0] if differing else "version"
        raise Usage(f"{self.prefix} was started with another {what} and is not finished: give the same {what}, or "
                    "--overwrite to start again")

    def resume(self, shards):
        """The number of shards that are written already. They must be the same files, in the same order."""
        done = self.state["shards"]
        for i, identity in enumerate(done):
            now = shards[i].identity() if i < len(shards) else None
            if now != {key: identity[key] for key in ("path", "bytes", "mtime_ns", "sha256")}:
                raise Usage(f"{identity['path']} was input {i + 1} when this corpus was started, but the file or the order "
                            "has changed: give the same inputs, or --overwrite to start again")
        return len(done)

    def add(self, tokens, lengths, masks=None, opens=True, closes=True):
        """Adds documents: tokens of the corpus' dtype, lengths int64 [documents]. opens, closes: whether a document in
        parts begins and ends here. Documents without a token are skipped."""
        self.files["bin"].write(tokens)
        if masks is not None:
            self.files["mask.bin"].write(masks)
        self.now["tokens"] += len(tokens)
        if not (opens and closes):
            self.open_tokens = int(lengths.sum()) + (0 if opens else self.open_tokens)
            lengths = np.array([self.open_tokens] if closes else [], np.int64)
        written = lengths[lengths > 0]
        self.now["left_out"] += len(lengths) - len(written)
        self.now["documents"] += len(written)
        if len(written):
            longest = int(written.max())
            if longest > LONGEST:
                raise Failure(f"a document has {longest:,} tokens; an index allows {LONGEST:,} per document: split the document")
            self.now["longest_document"] = max(self.now["longest_document"], longest)
        self.files["lengths"].write(written.astype("<i4"))

    def shard_done(self, identity):
        """Ends a shard, whose documents are all added. Saves the state if that is cheap compared with the work."""
        self.state["shards"].append(identity)
        self.state.update(self.now, **{kind: file.tell() for kind, file in self.files.items()})
        self.unsaved = True
        if time.monotonic() - self.saved_at > 20 * self.save_s:
            self._save()

    def _save(self):
        started = time.monotonic()
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        write_json(self.state_path, self.state)
        self.saved_at, self.unsaved = time.monotonic(), False
        self.save_s = self.saved_at - started

    def finish(self, manifest):
        """Writes the index and gives all files their names, the manifest last. manifest: its keys except the counts."""
        state = self.state
        if not state["finishing"]:
            if state["documents"] == 0:
                raise BadInput(state["shards"][0]["path"], "no input has a document with at least one token")
            state["finishing"] = True
            self._save()
        if os.path.exists(self.paths["smp.json"]):
            os.remove(self.paths["smp.json"])  # without a manifest, a mixture of old and new files is not complete
        if os.path.exists(self.partial["lengths"]):
            lengths = np.memmap(self.partial["lengths"], "<i4", "r")
            with open(f"{self.paths['idx']}.partial", "wb") as file:
                write_index(file, lengths, self.dtype)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{self.paths['idx']}.partial", self.paths["idx"])
        for kind in ("bin", "mask.bin"):
            if kind in self.partial:
                if os.path.exists(self.partial[kind]):
                    os.replace(self.partial[kind], self.paths[kind])
            elif os.path.exists(self.paths[kind]):
                os.remove(self.paths[kind])  # a file of the replaced corpus
        _sync_folder(self.prefix)
        manifest |= {"tokens": state["tokens"], "documents": state["documents"],
                     "has_mask": "mask.bin" in self.partial,
                     "sources": [{"path": shard["path"], "bytes": shard["bytes"]} for shard in state["shards"]],
                     "longest_document": state["longest_document"]}
        write_json(self.paths["smp.json"], manifest)
        for path in (self.partial["lengths"], self.state_path):
            if os.path.exists(path):
                os.remove(path)
        _sync_folder(self.prefix)
        return manifest
