"""Tokens of texts in fragments are those of `tokenizers` for the whole texts, for every kind of tokenizer."""
import random
import unittest

import numpy as np
import tokenizers
from support import END, bpe
from tokenizers import normalizers, pre_tokenizers

from smp_data import encoder
from smp_data.encoder import Encoder, surround
from smp_data.fragments import EXPRESSIONS
from smp_data.tokenizer import byte_tokenizer, word_tokenizer

PARTS = ["a", "B", "foo", "the", "bar", "bar_baz", "isn", "y", "return", "self", "the quick", " fox's",
         " ", "  ", "\t", "\n", "\n\n", "\r\n", "\v", "\f", "\xa0", "\u2028", "\u3000", "\x1c", "\x85", "\x00",
         "'", "'s", "'LL", "''", "1", "12345", "²", "Ⅷ",
         "(", "((", "=", "/", "//", ".", "...", "_", "#!", "-", "--", "<", "|", "<|end", END,
         "é", "e\u0301", "=\u0338", "\u0301", "ſ", "世界", "🙂"]


def split(expression, behavior="isolated", invert=False):
    return pre_tokenizers.Split(tokenizers.Regex(expression), behavior, invert)


def byte_letters():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def kinds():
    for i, expression in enumerate(EXPRESSIONS):
        yield f"expression {i}", bpe(pre_tokenizers.Sequence([split(expression), byte_letters()])), True
        yield f"expression {i}, NFC", bpe(pre_tokenizers.Sequence([split(expression), byte_letters()]),
                                          normalizers.NFC()), True
    yield "what lies between words removed", bpe(pre_tokenizers.Sequence([
        split(EXPRESSIONS[3], "removed", True), byte_letters()])), True
    yield "GPT-2", bpe(), True
    yield "digits, then GPT-2", bpe(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])), True
    yield "bytes", byte_tokenizer(), True
    yield "words", word_tokenizer(["<unk>", "<eos>", "foo", "the", "quick", "a"]), True
    yield "words without lines", word_tokenizer(["<unk>", "foo", "the", "quick", "a"]), True
    yield "a space before each text", bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)), False
    yield "another expression", bpe(pre_tokenizers.Sequence([split(r"\w+|\W"), byte_letters()])), False
    yield "bytes as letters before words", bpe(pre_tokenizers.Sequence([byte_letters(), split(EXPRESSIONS[1])])), False
    yield "words joined", bpe(pre_tokenizers.Sequence([
        split(EXPRESSIONS[1], "merged_with_next"), byte_letters()])), False
    yield "metaspace", bpe(pre_tokenizers.Metaspace()), False
    yield "lower case", bpe(normalizer=normalizers.Lowercase()), False


class Fragments(unittest.TestCase):
    def compare(self, name, tokenizer, texts, used=None):
        used = used or Encoder(tokenizer)
        data = [text.encode() for text in texts]
        tokens, lengths = used.encode(b"".join(data), np.cumsum([0, *map(len, data)]))
        self.assertEqual((lengths.sum(), len(lengths)), (len(tokens), len(texts)))
        for text, found in zip(texts, np.split(tokens, np.cumsum(lengths)[:-1])):
            self.assertEqual(found.tolist(), tokenizer.encode(text, add_special_tokens=False).ids, (name, text))

    def test_texts_of_all_kinds_of_characters(self):
        chance = random.Random(1)
        for name, tokenizer, cut in kinds():
            used = Encoder(tokenizer)
            self.assertEqual(used.cutter.possible, cut, name)
            for _ in range(4):
                self.compare(name, tokenizer, ["".join(chance.choices(PARTS, k=chance.randrange(0, 30)))
                                               for _ in range(400)], used)

    def test_every_pair_of_ascii_characters_beside_every_kind(self):
        around = ("", "a", "A1", "1", " ", "\n", "'", "''", "(", "((", "/", "\u0301", "é")
        texts = [left + chr(a) + chr(b) + right for a in range(128) for b in (*range(9, 14), 28, *range(32, 40), 40, 47, 48, 57,
                 65, 97, 115, 126, 127) for left, right in zip(around, around[3:] + around[:3])]
        for name, tokenizer, cut in kinds():
            if cut:
                self.compare(name, tokenizer, texts)

    def test_a_tokenizer_that_keeps_long_added_tokens(self):
        tokenizer = bpe()
        tokenizer.add_tokens(["foo (bar", "x=", tokenizers.AddedToken("[end]", lstrip=True, rstrip=True),
                              tokenizers.AddedToken("do", single_word=True)])
        chance = random.Random(2)
        parts = ["foo", " ", "(", "bar", "x", "=", "[end]", "[", "end", "do", " do ", "redo"]
        self.compare("added", tokenizer, ["".join(chance.choices(parts, k=chance.randrange(0, 12))) for _ in range(2000)])

    def test_fragments_are_forgotten_and_met_again(self):
        tokenizer = bpe()
        used = Encoder(tokenizer)
        texts = [f"word{i} again and again {i % 7}" for i in range(300)]
        before = encoder.REMEMBERED
        try:
            encoder.REMEMBERED = 50
            for _ in range(3):
                self.compare("forgotten", tokenizer, texts + ["x" * 100], used)
        finally:
            encoder.REMEMBERED = before

    def test_documents_beyond_one_batch(self):
        before = encoder.BATCH_BYTES
        try:
            encoder.BATCH_BYTES = 40
            self.compare("batches", bpe(), ["", "a b", "the quick brown fox " * 9, "", "c", END * 3, ""])
        finally:
            encoder.BATCH_BYTES = before

    def test_what_is_put_around_documents(self):
        tokens, lengths = surround(np.array([1, 2, 3], np.int32), np.array([1, 0, 2]), [7, 8], [9])
        self.assertEqual((tokens.tolist(), lengths.tolist()), ([7, 8, 1, 9, 7, 8, 2, 3, 9], [4, 0, 5]))
        tokens, lengths = surround(np.zeros(0, np.int32), np.array([0]), [], [9], even_empty=True)
        self.assertEqual((tokens.tolist(), lengths.tolist()), ([9], [1]))


if __name__ == "__main__":
    unittest.main()
