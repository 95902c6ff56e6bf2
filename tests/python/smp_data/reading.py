"""smp-data show and smp-data check."""
import json
import os
import pathlib
import shutil
import struct
import unittest

import numpy as np
from support import END, Case, bpe


class Reading(Case):
    def setUp(self):
        super().setUp()
        self.tokenizer_folder(bpe())
        self.write_jsonl("a.jsonl", ["the fox", "red tail"])
        self.good("tokenize", "--tokenizer", "tok", "--out", "c", "a.jsonl")

    def test_show(self):
        ids = bpe().encode("red tail").ids + [0]
        first = len(bpe().encode("the fox").ids) + 1
        expected = (f"document 1 of 2: {len(ids)} tokens, the first at position {first} of the corpus\n"
                    f"ids   {' '.join(map(str, ids))}\ntext  red tail{END}\n")
        for prefix in ("c", "c.bin", "c.smp.json"):
            self.assertEqual(self.good("show", prefix, "--document", "1"), expected)
        os.rename("tok", "moved")
        self.refused(2, "smp-data: the tokenizer of this corpus: tok: no such file; give its path with --tokenizer", "show", "c")
        self.assertEqual(self.good("show", "c", "--document", "1", "--tokenizer", "moved"), expected)
        code, _, error = self.run_command("show", "c", "--tokenizer", "gpt2-bytes")
        self.assertEqual((code, error[:82]), (2, "smp-data: --tokenizer gpt2-bytes: another tokenizer made this corpus (tok, "
                                                 "sha256 "))
        for document in ("2", "-1"):
            self.refused(2, f"smp-data: --document {document}: the corpus has documents 0 to 1", "show", "c", "--document", document)

    def test_show_what_counts(self):
        manifest = json.loads(pathlib.Path("c.smp.json").read_text())
        self.write("c.smp.json", json.dumps(manifest | {"has_mask": True}))
        tokens = len(np.fromfile("c.bin", np.uint16))
        mask = np.zeros(tokens, np.uint8)
        mask[1:3] = 1
        self.write("c.mask.bin", mask.tobytes())
        out = self.good("show", "c")
        self.assertIn("2 tokens count in the loss: [[so]]\n", out)
        self.assertIn("text  the[[ fox" + END + "]]\n", out)
        self.assertIn(f"{tokens} tokens, 2 counted of 2 documents", self.good("check", "c"))

    def test_check(self):
        tokens = len(np.fromfile("c.bin", np.uint16))
        self.assertEqual(self.good("check", "c"),
                         f"c.bin: complete: {tokens} tokens of 2 documents, uint16, all below {bpe().get_vocab_size()}\n")
        index, data = pathlib.Path("c.idx").read_bytes(), pathlib.Path("c.bin").read_bytes()
        manifest = json.loads(pathlib.Path("c.smp.json").read_text())
        lengths = struct.unpack_from("<2i", index, 34)
        vocabulary = bpe().get_vocab_size()

        def patched(content, place, layout, *values):
            content = bytearray(content)
            struct.pack_into(layout, content, place, *values)
            return bytes(content)

        def with_manifest(**changes):
            return {"c.smp.json": json.dumps(manifest | changes)}

        for files, text in (
                ({"c.idx": b"x"}, "c.idx: not a Megatron index: the file does not begin with MMIDIDX"),
                ({"c.idx": patched(index, 9, "<Q", 2)}, "c.idx: version 2 of the index is not supported; expected 1"),
                ({"c.idx": patched(index, 17, "<B", 9)}, "c.idx: 9 is not the code of a token type; expected 1 to 8"),
                ({"c.idx": index[:-1]}, f"c.idx: {len(index) - 1} bytes; 2 sequences and 3 entries of the document index take "
                                        f"{len(index)}"),
                ({"c.idx": patched(index, 18, "<Q", 1 << 60)},
                 f"c.idx: {len(index)} bytes; {1 << 60:,} sequences and 3 entries of the document index take "
                 f"{34 + 12 * (1 << 60) + 24:,}"),
                ({"c.idx": patched(index, 34, "<i", 0)}, "c.idx: sequence 0: 0 tokens from byte 0; the previous sequence ends at byte 0"),
                ({"c.idx": patched(index, 50, "<q", 4)}, f"c.idx: sequence 1: {lengths[1]} tokens from byte 4; the previous "
                                                         f"sequence ends at byte {2 * lengths[0]}"),
                ({"c.idx": patched(index, 66, "<q", 2)},
                 "c.idx: the document index does not map each sequence to one document, as smp-data requires"),
                ({"c.bin": data[:-2]}, f"c.bin: {len(data) - 2} bytes; the index says {len(data)}"),
                ({"c.bin": data[:-1]}, f"c.bin: {len(data) - 1} bytes is not a multiple of the size of uint16"),
                ({"c.bin": patched(data, 2, "<H", vocabulary)},
                 f"c.bin: token {vocabulary} at 1, in document 0; the last id of the vocabulary is {vocabulary - 1}"),
                ({"c.bin": patched(data, len(data) - 2, "<H", 5)}, "c.bin: document 1 does not end with token 0"),
                ({"c.smp.json": "{"}, "c.smp.json: not a manifest of smp-data"),
                ({"c.smp.json": "[]"}, "c.smp.json: not a manifest of smp-data"),
                (with_manifest(format="x"), "c.smp.json: not a manifest of smp-data"),
                (with_manifest(version=2), "c.smp.json: version 2 of the manifest is not supported; expected 1"),
                (with_manifest(tokens="3"), "c.smp.json: 'tokens' is missing or invalid"),
                (with_manifest(tokens=3), f"c.smp.json: tokens 3; the files have {tokens}"),
                (with_manifest(dtype="int32"), "c.smp.json: dtype 'int32'; the files have 'uint16'"),
                (with_manifest(has_mask=True), "c.mask.bin: no such file, although the manifest lists masks"),
                (with_manifest(has_mask=True) | {"c.mask.bin": b"\0"}, f"c.mask.bin: 1 bytes; there are {tokens} tokens"),
                (with_manifest(has_mask=True) | {"c.mask.bin": b"\0\2" + bytes(tokens - 2)},
                 "c.mask.bin: byte 1 is neither 0 nor 1")):
            os.makedirs("broken", exist_ok=True)
            for name in ("c.bin", "c.idx", "c.smp.json"):
                shutil.copy(name, "broken")
            for name, content in files.items():
                self.write(f"broken/{name}", content)
            self.refused(3, f"broken/{text}", "check", "broken/c")
            shutil.rmtree("broken")

    def test_check_of_what_is_missing(self):
        self.refused(3, "none.smp.json: no such file", "check", "none")
        os.remove("c.idx")
        self.refused(3, "c.idx: no such file", "check", "c")
        self.write("d.state.json", "{}")
        self.refused(3, "d.smp.json: no such file; the corpus is not finished: run the command that started it again", "check", "d")


if __name__ == "__main__":
    unittest.main()
