"""smp-data tokenize: what it writes, read by the definition of the formats."""
import hashlib
import io
import json
import os
import pathlib
import struct
import unittest
from unittest import mock

import numpy as np
import pyarrow
import pyarrow.parquet
from support import END, Case, bpe, sentences
from tokenizers import processors

from smp_data import inputs
from smp_data.progress import Progress, clock


def megatron(prefix):
    """Documents of PREFIX, by the definition of Megatron's indexed dataset and nothing of ours."""
    idx, data = pathlib.Path(f"{prefix}.idx").read_bytes(), pathlib.Path(f"{prefix}.bin").read_bytes()
    magic, version, code, sequences, entries = struct.unpack_from("<9sQBQQ", idx)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    lengths = struct.unpack_from(f"<{sequences}i", idx, 34)
    pointers = struct.unpack_from(f"<{sequences}q", idx, 34 + 4 * sequences)
    documents = struct.unpack_from(f"<{entries}q", idx, 34 + 12 * sequences)
    assert len(idx) == 34 + 12 * sequences + 8 * entries
    assert list(documents) == list(range(sequences + 1))
    letter, size = {8: ("H", 2), 4: ("i", 4)}[code]
    assert sum(lengths) * size == len(data)
    return [list(struct.unpack_from(f"<{length}{letter}", data, pointer)) for length, pointer in zip(lengths, pointers)]


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


class Progresses(unittest.TestCase):
    def test_lines_and_a_line_that_is_written_over(self):
        for terminal, expected in (
                (False, "smp-data:  25 %  5 of 20 MB  0.5 MB/s  9 tokens  30 s left\n"),
                (True, "\r\x1b[K 25 %  5 of 20 MB  0.5 MB/s  9 tokens  30 s left\r\x1b[K")):
            stream = Stream(terminal)
            times = iter((0.0, 10.0, 10.0, 10.1, 10.1))
            with mock.patch("time.monotonic", lambda: next(times)):
                progress = Progress(20_000_000, stream=stream)
                progress.add(5_000_000, 9)
                progress.add(1_000_000, 10)  # too soon for another
            progress.clear()
            self.assertEqual(stream.getvalue(), expected)
        self.assertEqual((clock(59), clock(61), clock(7325)), ("59 s", "1 min 01 s", "2 h 02 min"))


class Tokenize(Case):
    def test_bytes_of_a_small_corpus(self):
        self.write("words.txt", "<unk>\n<eos>\nto\nbe\n")
        self.write_jsonl("in.jsonl", ["to be", "", "or to"])
        out = self.good("tokenize", "--tokenizer", "words:words.txt", "--out", "c", "in.jsonl")
        self.assertIn("words:words.txt: 4 tokens; <eos> (1) ends each document\n", out)
        self.assertIn("c.bin: 6 tokens of 2 documents, uint16;", out)
        self.assertIn("; 1 documents without a token were skipped\n", out)
        self.assertEqual(pathlib.Path("c.bin").read_bytes(), struct.pack("<6H", 2, 3, 1, 0, 2, 1))
        self.assertEqual(pathlib.Path("c.idx").read_bytes(), b"MMIDIDX\0\0" + struct.pack(
            "<QBQQ2i2q3q", 1, 8, 2, 3, 3, 3, 0, 6, 0, 1, 2))
        self.assertEqual(json.loads(pathlib.Path("c.smp.json").read_text()), {
            "format": "smp-data", "version": 1,
            "tokenizer": {"name": "words:words.txt", "sha256": hashlib.sha256(b"<unk>\n<eos>\nto\nbe\n").hexdigest()},
            "vocab_size": 4, "end_of_document": 1, "dtype": "uint16", "tokens": 6, "documents": 2, "has_mask": False,
            "sources": [{"path": "in.jsonl", "bytes": os.path.getsize("in.jsonl")}], "longest_document": 3})
        self.assertEqual(sorted(os.listdir()), ["c.bin", "c.idx", "c.smp.json", "in.jsonl", "words.txt"])

    def test_all_kinds_of_input_any_workers_and_pieces(self):
        texts = ["first", "second", "third", "", *sentences(400)] + ["naïve 世界 🙂 " + END + " more", "x" * 300]
        self.tokenizer_folder(bpe())
        self.write_jsonl("in/a.jsonl", texts)
        table = pyarrow.table({"other": range(len(texts)), "text": texts})
        pyarrow.parquet.write_table(table, "in/b.parquet", row_group_size=100)
        pyarrow.parquet.write_table(table.cast(pyarrow.schema([("other", "int64"), ("text", "large_string")])).slice(0, 3),
                                    "in/b2.parquet")
        self.write("in/c.txt", "\ufeff" + "\r\n".join(texts))
        end = bpe().token_to_id(END)
        one = [bpe().encode(text).ids + [end] for text in texts if text]
        whole = bpe().encode("\r\n".join(texts)).ids + [end]
        before = inputs.PIECE_BYTES, inputs.LOOK_BYTES
        try:
            for inputs.PIECE_BYTES, inputs.LOOK_BYTES, workers in ((4 << 20, 1 << 20, 1), (700, 90, 3), (41, 7, 2)):
                self.good("tokenize", "--tokenizer", "tok", "--out", "c", "--workers", workers, "in", "--overwrite")
                self.assertEqual(megatron("c"), one + one + one[:3] + [whole])
                self.good("check", "c")
        finally:
            inputs.PIECE_BYTES, inputs.LOOK_BYTES = before
        manifest = json.loads(pathlib.Path("c.smp.json").read_text())
        self.assertEqual([source["path"] for source in manifest["sources"]],
                         ["in/a.jsonl", "in/b.parquet", "in/b2.parquet", "in/c.txt"])
        self.assertEqual(manifest["longest_document"], len(whole))

    def test_lines_of_text_as_documents(self):
        self.write("a.txt", "to be\n\nor\r\nnot")
        self.write("w.txt", "<unk>\n<eos>\nto\nbe\nor\nnot\n")
        self.good("tokenize", "--tokenizer", "words:w.txt", "--documents", "line", "--out", "c", "a.txt")
        self.assertEqual(megatron("c"), [[2, 3, 1], [4, 1], [5, 1]])

    def test_wikitext_tokens(self):
        """As users of NeMo and others count them: the words of each line and <eos>, empty lines too."""
        text = " \n = A title = \n \n to be , or <unk> to be \n"
        self.write("wiki.train.tokens", text)
        self.good("vocabulary", "--kind", "words", "--out", "words", "wiki.train.tokens")
        words = pathlib.Path("words/words.txt").read_text().split("\n")
        expected = [words.index(word) for line in text.splitlines() for word in line.split() + ["<eos>"]]
        for name in ("words", "words:words/words.txt", "words/tokenizer.json"):
            self.good("tokenize", "--tokenizer", name, "--out", "c", "wiki.train.tokens", "--overwrite")
            self.assertEqual(megatron("c"), [expected])

    def test_the_end_of_a_document(self):
        self.tokenizer_folder(bpe())
        self.write("a.txt", "fox")
        fox, end = bpe().encode("fox").ids, bpe().token_to_id(END)
        for options, expected in (([], [end]), (["--end-of-document", "none"], []), (["--end-of-document", "7"], [7]),
                                  (["--end-of-document", END], [end]), (["--end-of-document", "x"], bpe().encode("x").ids)):  # 7: the id
            self.good("tokenize", "--tokenizer", "tok", "--out", "c", "a.txt", "--overwrite", *options)
            self.assertEqual(megatron("c"), [fox + expected])

    def test_what_the_template_adds(self):
        tokenizer = bpe(special=(END, "<s>"))
        start, end = tokenizer.token_to_id("<s>"), tokenizer.token_to_id(END)
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A " + END, special_tokens=[("<s>", start), (END, end)])
        tokenizer.enable_truncation(2)  # as some saved tokenizers have it; it is for a model's input
        self.tokenizer_folder(tokenizer)
        self.write_jsonl("a.jsonl", ["the fox", "", "red"])
        tokenizer.no_truncation()
        bare = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("the fox", "red")]
        self.good("tokenize", "--tokenizer", "tok", "--out", "c", "a.jsonl")
        self.assertEqual(megatron("c"), [[start, *ids, end] for ids in bare])  # one end, not two
        self.good("tokenize", "--tokenizer", "tok", "--out", "c", "a.jsonl", "--overwrite", "--no-special-tokens",
                  "--end-of-document", "none")
        self.assertEqual(megatron("c"), bare)

    def test_types_of_tokens(self):
        self.write_jsonl("a.jsonl", ["a b"])
        for words, wanted, expected in ((65499, "auto", np.uint16), (65500, "auto", np.int32), (65536, "uint16", np.uint16),
                                        (10, "int32", np.int32)):
            self.write("w.txt", "<unk>\n<eos>\na\nb\n" + "".join(f"w{i}\n" for i in range(words - 4)))
            self.good("tokenize", "--tokenizer", "words:w.txt", "--out", "c", "a.jsonl", "--overwrite", "--dtype", wanted)
            self.assertEqual(np.fromfile("c.bin", expected).tolist(), [2, 3, 1])
            self.assertEqual(megatron("c"), [[2, 3, 1]])
        self.write("w.txt", "<unk>\n<eos>\n" + "".join(f"w{i}\n" for i in range(65535)))
        self.refused(2, "smp-data: --dtype uint16: words:w.txt has tokens up to 65,536, uint16 holds at most 65,535: give int32 or auto",
                     "tokenize", "--tokenizer", "words:w.txt", "--out", "c", "a.jsonl", "--dtype", "uint16", "--overwrite")

    def test_gpt2_bytes(self):
        self.write("a.txt", bytes(range(1, 128)))
        self.good("tokenize", "--tokenizer", "gpt2-bytes", "--out", "c", "a.txt")
        (found,) = megatron("c")
        self.assertEqual((found[ord("!") - 1], found[ord("a") - 1], found[ord(" ") - 1], found[-1]), (0, 64, 220, 256))

    def test_a_replaced_corpus_keeps_no_mask(self):
        self.write("c.mask.bin", b"old")
        self.write("a.txt", "fox")
        self.refused(2, "smp-data: c.mask.bin exists; --overwrite replaces it once the new corpus is complete",
                     "tokenize", "--tokenizer", "gpt2-bytes", "--out", "c", "a.txt")
        self.good("tokenize", "--tokenizer", "gpt2-bytes", "--out", "c", "a.txt", "--overwrite")
        self.assertFalse(os.path.exists("c.mask.bin"))
        self.refused(2, "smp-data: c.bin exists; --overwrite replaces it once the new corpus is complete",
                     "tokenize", "--tokenizer", "gpt2-bytes", "--out", "c", "a.txt")


if __name__ == "__main__":
    unittest.main()
