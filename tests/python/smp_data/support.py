"""What the tests of smp-data share: a scratch folder, the command in this process, tokenizers made of a few lines."""
import contextlib
import io
import json
import os
import pathlib
import random
import tempfile
import unittest

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from smp_data.command_line import main

ROOT = pathlib.Path(__file__).resolve().parents[3]
END = "<|endoftext|>"
WORDS = "the quick brown fox's tail isn't red; it'll do 12345 foo(bar_baz) x = y+1\n\n  return self.x".split(" ")


def sentences(count, seed=0):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randrange(1, 40))) for _ in range(count)]


def bpe(pre_tokenizer=None, normalizer=None, size=400, special=(END,)):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(sentences(300), trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return tokenizer


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.before = os.getcwd()
        self.addCleanup(os.chdir, self.before)
        os.chdir(scratch.name)

    def write(self, name, content):
        path = pathlib.Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    def write_jsonl(self, name, texts, key="text"):
        return self.write(name, "".join(json.dumps({key: text}) + "\n" for text in texts))

    def tokenizer_folder(self, tokenizer=None, name="tok", **config):
        os.makedirs(name)
        (tokenizer or bpe()).save(f"{name}/tokenizer.json")
        self.write(f"{name}/tokenizer_config.json",
                   json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END} | config))
        return name

    def run_command(self, *arguments):
        """(exit code, standard output, standard error) of smp-data."""
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as ended:
                code = ended.code
        return code, out.getvalue(), error.getvalue()

    def good(self, *arguments):
        code, out, error = self.run_command(*arguments)
        self.assertEqual((code, error), (0, ""))
        return out

    def refused(self, code, text, *arguments):
        """The command ends with a code and one line on standard error."""
        found, _, error = self.run_command(*arguments)
        self.assertEqual((found, error), (code, text + "\n"))
