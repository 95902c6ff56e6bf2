"""Input and options that are refused: one line with the place, and the exit code."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest

import pyarrow
import pyarrow.parquet
from support import ROOT, Case, bpe
from tokenizers import Tokenizer, models, processors

from smp_data import inputs

KEYS = " (--json-key)"


class BadInput(Case):
    def tokenize(self, code, text, *arguments, tokenizer="gpt2-bytes"):
        self.refused(code, text, "tokenize", "--tokenizer", tokenizer, "--out", "c", *arguments)
        self.assertFalse(os.path.exists("c.bin") or os.path.exists("c.smp.json"))

    def test_json(self):
        good = '{"text": "a"}\n'
        deep = "[" * 100_000
        for line, text in (
                ('{"text": "a" "b"}', "not valid JSON: Expecting ',' delimiter at column 14"),
                ('{"text": "a"', "not valid JSON: Expecting ',' delimiter at column 13"),
                (b'{"text": "a\xff"}', "not UTF-8: byte 12 of the line"),
                ("[1]", "not a JSON object: expected one object a line"),
                ('{"txt": "a", "b": 1}', "no key 'text'; the keys are txt, b" + KEYS),
                ("{}", "no key 'text'; the keys are none" + KEYS),
                ('{"text": ["a"]}', """'text' is not a string but ["a"]"""),
                ('{"text": null}', "'text' is not a string but null"),
                (r'{"text": "\ud800"}', "'text' has an unpaired surrogate, which UTF-8 cannot encode"),
                (deep, "the JSON nests too deeply")):
            line = line if isinstance(line, bytes) else line.encode()
            before = inputs.PIECE_BYTES
            try:
                for inputs.PIECE_BYTES in (5, 64, before):  # the line is counted over pieces
                    self.write("a.jsonl", (good * 3).encode() + b"\n" + line + b"\n" + good.encode())
                    self.tokenize(3, f"a.jsonl:5: {text}", "a.jsonl", "--overwrite")
            finally:
                inputs.PIECE_BYTES = before

    def test_the_first_error_is_told(self):
        self.write("a.jsonl", '{"text": "a"}\n' * 2000 + "x\n" + '{"text": 1}\n' * 2000)
        before = inputs.PIECE_BYTES
        try:
            inputs.PIECE_BYTES = 1000
            self.tokenize(3, "a.jsonl:2001: not valid JSON: Expecting value at column 1", "a.jsonl", "--workers", "4")
        finally:
            inputs.PIECE_BYTES = before

    def test_text(self):
        self.write("a.txt", b"one\ntwo \xe4\n")
        self.tokenize(3, "a.txt:2: not UTF-8: byte 8 of the file", "a.txt")
        self.tokenize(3, "a.txt:2: not UTF-8: byte 5 of the line", "a.txt", "--documents", "line", "--overwrite")
        self.write("empty.txt", "")
        self.tokenize(3, "empty.txt: the file is empty (--skip-empty skips empty files)", "empty.txt", "--overwrite")
        self.tokenize(3, "empty.txt: every file is empty", "empty.txt", "--skip-empty", "--overwrite")
        self.write("blank.jsonl", "\n \n")
        self.tokenize(3, "blank.jsonl: no input has a document with at least one token", "blank.jsonl", "--overwrite")

    def test_parquet(self):
        self.write("a.parquet", "no parquet")
        self.tokenize(3, "a.parquet: not a Parquet file: Parquet magic bytes not found in footer. Either the file is corrupted "
                         "or this is not a parquet file.", "a.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2], "txt": ["a", None]}), "b.parquet")
        self.tokenize(3, "b.parquet: no column 'text'; the columns are n, txt" + KEYS, "b.parquet", "--overwrite")
        self.tokenize(3, "b.parquet: column 'n' holds int64, not text", "b.parquet", "--json-key", "n", "--overwrite")
        self.tokenize(3, "b.parquet: row 1 of row group 0: 'txt' is null", "b.parquet", "--json-key", "txt", "--overwrite")
        pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([], "string")}), "c.parquet")
        self.tokenize(3, "c.parquet: the file has no rows", "c.parquet", "--overwrite")
        broken = pyarrow.array([b"ok", b"\xff\xfe"]).view("string")
        pyarrow.parquet.write_table(pyarrow.table({"text": broken}), "d.parquet")
        self.tokenize(3, "d.parquet: row group 0: Invalid UTF8 sequence at string index 1", "d.parquet", "--overwrite")

    def test_files(self):
        self.write("a.txt", "a")
        self.tokenize(3, "none.txt: no such file", "none.txt")
        self.tokenize(3, "*.jsonl: no such file", "*.jsonl")
        self.tokenize(2, "smp-data: a.txt is named twice", "a.txt", "a*.txt")
        os.makedirs("folder")
        self.tokenize(3, "folder: no .jsonl, .json, .txt, .tokens, .parquet file in this folder; give a pattern for other files",
                      "folder")
        for name, text in (("a.jsonl.gz", "compressed: gunzip it first"), ("a.bin", ".bin files are not text")):
            self.write(name, "x")
            self.tokenize(3, f"{name}: {text}", name)
        self.refused(3, "no/folder: no such folder", "tokenize", "--tokenizer", "gpt2-bytes", "--out", "no/folder/c", "a.txt")
        os.mkfifo("pipe")
        self.tokenize(3, "pipe: expected a regular file", "pipe")

    def test_tokenizers(self):
        self.write("a.txt", "a")
        self.tokenize(3, "none: no such file", "a.txt", tokenizer="none")
        os.makedirs("folder")
        self.tokenize(3, "folder: tokenizer.json is missing; AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of "
                         "transformers writes it", "a.txt", tokenizer="folder")
        self.write("t.json", "{}")
        code, _, error = self.run_command("tokenize", "--tokenizer", "t.json", "--out", "c", "a.txt")
        self.assertEqual((code, error[:42]), (3, "t.json: not a Hugging Face tokenizer: Mode"))
        for words, text in (("<unk>\na b\n", ":2: expected one word"), ("<unk>\n\na\n", ":2: expected one word"),
                            ("<unk>\na\na\n", ":3: 'a' is already in line 2"),
                            ("a\n", ": <unk> is missing: words outside the list would have no token"),
                            (b"\xff", ": not UTF-8: byte 0")):
            self.write("w.txt", words)
            self.tokenize(3, f"w.txt{text}", "a.txt", tokenizer="words:w.txt")
        self.write("w.txt", "<unk>\na\n")
        self.tokenize(2, "smp-data: --end-of-document: words:w.txt has no end-of-sequence token: give a token, an id or none",
                      "a.txt", tokenizer="words:w.txt")
        self.tokenize(2, "smp-data: --end-of-document 2: the last id of words:w.txt is 1", "a.txt",
                      "--end-of-document", "2", tokenizer="words:w.txt")
        self.tokenize(2, "smp-data: --end-of-document b: not a token of words:w.txt", "a.txt", "--end-of-document", "b",
                      tokenizer="words:w.txt")
        Tokenizer(models.BPE({"a": 0}, [], dropout=0.5)).save("d.json")
        self.tokenize(3, "d.json: the tokenizer's BPE uses dropout, so equal text would give different tokens: set its dropout to null", "a.txt",
                      tokenizer="d.json")
        self.tokenizer_folder(bpe(), "bad")
        self.write("bad/tokenizer_config.json", "[")
        self.tokenize(3, "bad/tokenizer_config.json: not a JSON object", "a.txt", tokenizer="bad")

    def test_a_document_that_is_too_long_at_once(self):
        from smp_data import encoder
        before = encoder.LONGEST
        self.write("a.txt", "世" * 3_000_000)
        try:
            encoder.LONGEST = 1 << 20
            self.tokenize(3, "a.txt: a document of 3 M characters, which this tokenizer encodes as a whole; 1 M is the limit: "
                             "cut it into several", "a.txt")
        finally:
            encoder.LONGEST = before

    def test_command_lines(self):
        for arguments, text in (
                ([], "smp-data: the following arguments are required: COMMAND\nsmp-data --help shows examples"),
                (["tokenise"], "smp-data: argument COMMAND: invalid choice: 'tokenise' (choose from 'tokenize', 'vocabulary', "
                               "'chat', 'show', 'check')\nsmp-data --help shows examples"),
                (["tokenize", "--tokenizer", "x", "--out", "c", "a", "--workers", "0"],
                 "smp-data tokenize: argument --workers: 0 is below 1\nsmp-data tokenize --help shows examples")):
            code, _, error = self.run_command(*arguments)
            self.assertEqual((code, error), (2, text + "\n"))
        for command in ([], ["tokenize"], ["vocabulary"], ["chat"], ["show"], ["check"]):
            code, out, _ = self.run_command(*command, "--help")
            self.assertEqual(code, 0)
            self.assertIn("examples", out)

    def test_as_a_program_without_its_environment(self):
        os.makedirs("tree/scripts")
        (pathlib.Path("tree/scripts/smp-data")).write_text((ROOT / "scripts/smp-data").read_text())
        os.chmod("tree/scripts/smp-data", 0o755)
        os.symlink("tree/scripts/smp-data", "link")
        done = subprocess.run(["./link", "--help"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "smp-data: its Python environment is not there; scripts/setup --data makes it\n"))


if __name__ == "__main__":
    unittest.main()
