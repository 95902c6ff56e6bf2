"""Encodes documents with `tokenizers`. If the tokenizer allows it, each distinct fragment of the text is encoded once
(fragments.py) and its tokens are cached. The rest of the work is done by numpy and pyarrow, about fifty times faster."""
import numpy as np
import pyarrow

from smp_data.fragments import Cutter

BATCH_BYTES = 4 << 20  # text that is encoded at once
REMEMBERED_BYTES = 48  # longer fragments rarely occur again
REMEMBERED = 500_000  # fragments; about 100 MB
AT_ONCE = 1 << 20  # characters passed to `tokenizers` at once; it needs about a hundred times as much memory
LONGEST = 64 << 20  # the most characters of one text that are passed to it


class DocumentTooLong(Exception):
    """A document that the tokenizer cannot encode in parts, and that would take too much memory."""


class Encoder:
    """Encodes with one tokenizer of `tokenizers`. One thread."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.cutter = Cutter(tokenizer)
        self._forget()

    def _forget(self):
        self.number = {}  # fragment -> its place in first and count
        self.flat = np.zeros(1 << 16, np.int32)
        self.first, self.count = np.zeros(1, np.int64), np.zeros(0, np.int64)

    def encode(self, data, starts):
        """Tokens of documents. data: bytes of UTF-8; starts: int64 [documents + 1], the documents' starts and the end.
        Returns (int32 [tokens], int64 [documents]: the number of tokens of each document)."""
        tokens, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        begin, documents = 0, len(starts) - 1
        while begin < documents:
            end = int(np.searchsorted(starts, starts[begin] + BATCH_BYTES, "right")) - 1
            end = min(max(end, begin + 1), documents)
            part = data[starts[begin]:starts[end]]
            some, counts = self._batch(part, np.asarray(starts[begin:end + 1]) - starts[begin])
            tokens.append(some)
            lengths.append(counts)
            begin = end
        return np.concatenate(tokens), np.concatenate(lengths)

    def _batch(self, data, starts):
        if not self.cutter.possible:
            return self._whole(data, starts)
        if self.cutter.added is None:
            return self._in_fragments(data, starts)
        places = [match.start() for match in self.cutter.added.finditer(data)]
        if not places:
            return self._in_fragments(data, starts)
        whole = np.zeros(len(starts) - 1, bool)
        whole[np.searchsorted(starts, places, "right") - 1] = True
        results = [None] * len(whole)
        for way, encode in ((False, self._in_fragments), (True, self._whole)):
            chosen = np.flatnonzero(whole == way)
            parts = [data[starts[i]:starts[i + 1]] for i in chosen]
            tokens, lengths = encode(b"".join(parts), np.cumsum([0, *map(len, parts)]))
            for i, some in zip(chosen, np.split(tokens, np.cumsum(lengths)[:-1])):
                results[i] = some
        return np.concatenate(results), np.array([len(some) for some in results], np.int64)

    def _whole(self, data, starts):
        texts = [data[a:b].decode() for a, b in zip(starts[:-1], starts[1:])]
        encodings = self._encode(texts)
        lengths = np.array([len(ids) for ids in encodings], np.int64)
        return np.concatenate([np.zeros(0, np.int32), *encodings]), lengths

    def _encode(self, texts):
        longest = max(map(len, texts), default=0)
        if longest > LONGEST:
            raise DocumentTooLong(f"a document of {longest / 1e6:,.0f} M characters, which this tokenizer encodes "
                                  f"as a whole; {LONGEST / 1e6:,.0f} M is the limit: cut it into several")
        found, batch, characters = [], [], 0
        for text in texts:
            batch.append(text)
            characters += len(text)
            if characters >= AT_ONCE:
                found += self._encode_batch(batch)
                batch, characters = [], 0
        return found + self._encode_batch(batch)

    def _encode_batch(self, texts):
        return [np.array(encoding.ids, np.int32)
                for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _in_fragments(self, data, starts):
        starts = np.asarray(starts, np.int64)
        lengths = np.zeros(len(starts) - 1, np.int64)
        filled = starts[1:] > starts[:-1]
        if not filled.any():
            return np.zeros(0, np.int32), lengths
        buffer = np.frombuffer(data, np.uint8)
        marks = self.cutter.cuts(buffer)
        marks[starts[:-1][filled]] = True
        offsets = np.append(np.flatnonzero(marks), len(buffer))
        fragments = pyarrow.BinaryArray.from_buffers(
            pyarrow.binary(), len(offsets) - 1,
            [None, pyarrow.py_buffer(offsets.astype(np.int32)), pyarrow.py_buffer(data)]).dictionary_encode()
        numbers, kept = self._numbers(fragments.dictionary.to_pylist())
        which = numbers[fragments.indices.to_numpy()]
        count = self.count[which]
        ends = np.cumsum(count)
        # Token k of a fragment whose tokens end at ends[i] stands at first[which[i]] + k in flat.
        tokens = self.flat[np.repeat(self.first[which] - (ends - count), count) + np.arange(ends[-1])]
        first_fragments = np.searchsorted(offsets, starts[:-1][filled])
        lengths[filled] = np.add.reduceat(count, first_fragments)
        self.count, self.first = self.count[:kept], self.first[:kept + 1]
        return tokens, lengths

    def _numbers(self, fragments):
        """Indices of fragments in first and count, int64, and the number of cached ones; the others follow them."""
        if len(self.number) > REMEMBERED:
            self._forget()
        get = self.number.get
        numbers = np.fromiter((get(fragment, -1) for fragment in fragments), np.int64, len(fragments))
        unseen = np.flatnonzero(numbers < 0)
        short = np.array([len(fragments[i]) <= REMEMBERED_BYTES for i in unseen], bool)
        unseen = np.concatenate([unseen[short], unseen[~short]])
        kept = len(self.count)
        numbers[unseen] = np.arange(kept, kept + len(unseen))
        kept += int(short.sum())
        if len(unseen):
            for i in unseen[:short.sum()]:
                self.number[fragments[i]] = int(numbers[i])
            self._append(self._encode([fragments[i].decode() for i in unseen]))
        return numbers, kept

    def _append(self, encodings):
        counts = np.array([len(ids) for ids in encodings], np.int64)
        used = int(self.first[-1])
        total = used + int(counts.sum())
        if total > len(self.flat):
            self.flat = np.concatenate([self.flat, np.zeros(max(total, 2 * len(self.flat)) - len(self.flat), np.int32)])
        self.flat[used:total] = np.concatenate(encodings)
        self.count = np.concatenate([self.count, counts])
        self.first = np.concatenate([self.first, used + np.cumsum(counts)])


def surround(tokens, lengths, before, behind, even_empty=False):
    """Adds the ids `before` and `behind` to each document with tokens. Returns tokens and lengths as encode does."""
    if not before and not behind:
        return tokens, lengths
    filled = (lengths > 0) | even_empty
    ends = np.cumsum(lengths)[filled]
    starts = ends - lengths[filled]
    places = np.concatenate([np.repeat(starts, len(before)), np.repeat(ends, len(behind))])
    ids = np.concatenate([np.tile(np.array(before, np.int32), len(starts)),
                          np.tile(np.array(behind, np.int32), len(ends))])
    # At one place that ends a document and starts the next, the tokens behind the first come first.
    order = np.lexsort((np.concatenate([np.ones(len(starts) * len(before)), np.zeros(len(ends) * len(behind))]), places))
    return np.insert(tokens, places[order], ids[order]), lengths + filled * (len(before) + len(behind))
