"""smp-data vocabulary: tokenizers that `tokenizers` and transformers load."""
import collections
import json
import os
import pathlib
import unittest

import pyarrow
import pyarrow.parquet
import tokenizers
from support import END, Case, sentences


def auto(folder):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    return transformers.AutoTokenizer.from_pretrained(folder)


class Vocabulary(Case):
    def test_bpe(self):
        texts = sentences(300)
        self.write_jsonl("a.jsonl", texts)
        out = self.good("vocabulary", "--kind", "bpe", "--size", "300", "--out", "v", "a.jsonl")
        self.assertEqual(out, f"v/tokenizer.json: 300 tokens from {os.path.getsize('a.jsonl') / 1e6:.1f} MB\n")
        saved = tokenizers.Tokenizer.from_file("v/tokenizer.json")
        loaded = auto("v")
        self.assertTrue(loaded.is_fast)
        self.assertEqual((len(loaded), loaded.eos_token, loaded.eos_token_id, saved.token_to_id(END)), (300, END, 0, 0))
        for text in texts[:20] + ["naïve 世界 \x00🙂\n", END]:
            self.assertEqual(loaded(text).input_ids, saved.encode(text).ids)
            self.assertEqual(loaded.decode(loaded(text).input_ids), text)
        self.assertLess(len(saved.encode(texts[0]).ids), len(texts[0]) / 1.5)
        first = pathlib.Path("v/tokenizer.json").read_bytes()
        self.good("vocabulary", "--kind", "bpe", "--size", "300", "--out", "v", "a.jsonl", "--overwrite")
        self.assertEqual(first, pathlib.Path("v/tokenizer.json").read_bytes())

    def test_words(self):
        """The words of WikiText, from its .tokens file and from Parquet: <unk>, <eos>, then by frequency."""
        lines = ["", " = A title = ", "", " the the <unk> of of the , a b"]
        self.write("wiki.train.tokens", "".join(f"{line}\n" for line in lines))
        pyarrow.parquet.write_table(pyarrow.table({"text": [f"{line}\n" if line else "" for line in lines]}), "wiki.parquet")
        counted = collections.Counter(word for line in lines for word in line.split())
        del counted["<unk>"]
        expected = ["<unk>", "<eos>", *sorted(counted, key=lambda word: (-counted[word], word))]
        for source in ("wiki.train.tokens", "wiki.parquet"):
            self.good("vocabulary", "--kind", "words", "--out", "v", source, "--overwrite")
            self.assertEqual(pathlib.Path("v/words.txt").read_text().splitlines(), expected)
        self.good("vocabulary", "--kind", "words", "--size", "5", "--out", "v5", source)
        self.assertEqual(pathlib.Path("v5/words.txt").read_text().splitlines(), expected[:5])
        self.good("vocabulary", "--kind", "words", "--min-count", "2", "--out", "v2", source)
        self.assertEqual(set(pathlib.Path("v2/words.txt").read_text().split()), {"<unk>", "<eos>", "the", "of", "="})
        loaded = auto("v5")
        self.assertEqual(loaded("the nothing\nof\n").input_ids,
                         [expected.index(word) for word in ("the", "<unk>", "<eos>", "of")])
        self.assertEqual((loaded.unk_token_id, loaded.eos_token_id), (0, 1))

    def test_refusals(self):
        self.write("a.txt", "a b a\n")
        for code, text, arguments in (
                (2, "smp-data: --size is required: the number of tokens of the vocabulary", ["--kind", "bpe"]),
                (2, "smp-data: --size 256: a vocabulary of kind bpe has at least 257 tokens", ["--kind", "bpe", "--size", 256]),
                (2, "smp-data: --size 2: a vocabulary of kind words has at least 3 tokens", ["--kind", "words", "--size", 2]),
                (2, "smp-data: --min-count needs --kind words", ["--kind", "bpe", "--size", 300, "--min-count", 2]),
                (3, "a.txt: the text gives 259 tokens, not 8,192: give more text, or lower --size",
                 ["--kind", "bpe", "--size", 8192]),
                (3, "a.txt: the text gives 4 tokens, not 9: give more text, or lower --size", ["--kind", "words", "--size", 9]),
                (3, "a.txt: the file has no word", ["--kind", "words", "--min-count", 3])):
            self.refused(code, text, "vocabulary", *arguments, "--out", "v", "a.txt")
            self.assertFalse(os.path.exists("v/tokenizer.json"))
        self.write("v/tokenizer.json", "{}")
        self.refused(2, "smp-data: v/tokenizer.json exists; --overwrite replaces it",
                     "vocabulary", "--kind", "words", "--out", "v", "a.txt")


if __name__ == "__main__":
    unittest.main()
