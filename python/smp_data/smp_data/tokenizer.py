"""The tokenizer that the command line names: FOLDER, tokenizer.json, gpt2-bytes or words:FILE."""
import hashlib
import json
import os

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from smp_data.errors import BadInput, Usage

# Where no tokenizer_config.json names one, the token of these that the vocabulary has.
KNOWN_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
UNKNOWN_WORD, END_OF_LINE = "<unk>", "<eos>"
UINT16_BELOW = 65500  # as Megatron's DType.optimal_dtype


def word_tokenizer(words):
    """Words between white space; a word's id is its index in a list. The end of a line is <eos>, if the list has it,
    except at the end of a document, where the end-of-document token takes its place."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, UNKNOWN_WORD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if END_OF_LINE in words:
        tokenizer.normalizer = normalizers.Sequence([
            normalizers.Replace(tokenizers.Regex("\\n\\z"), ""), normalizers.Replace("\n", f" {END_OF_LINE} ")])
    return tokenizer


def byte_tokenizer():
    """The first 256 tokens of GPT-2, which are the bytes in GPT-2's order, and <|endoftext|> = 256."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken("<|endoftext|>")])
    return tokenizer


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise BadInput(path, "no such file") from None


def _words(path):
    text = _read(path)
    try:
        words = text.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BadInput(path, f"not UTF-8: byte {error.start:,}") from None
    seen = {}
    for line, word in enumerate(words, 1):
        if not word or word.split() != [word]:
            raise BadInput(f"{path}:{line}", "expected one word")
        if word in seen:
            raise BadInput(f"{path}:{line}", f"'{word}' is already in line {seen[word]}")
        seen[word] = line
    if UNKNOWN_WORD not in seen:
        raise BadInput(path, f"{UNKNOWN_WORD} is missing: words outside the list would have no token")
    return word_tokenizer(words), text


class Named:
    """tokenizer: an object of `tokenizers`, without truncation and padding. name, sha256: as in the manifest.
    vocab_size: the largest id + 1. prefix, suffix: ids that the tokenizer's template adds to a document."""

    def __init__(self, name):
        self.name, self.eos = name, None
        if name == "gpt2-bytes":
            self.tokenizer = byte_tokenizer()
            content = self.tokenizer.to_str().encode()
        elif name.startswith("words:"):
            self.tokenizer, content = _words(name[len("words:"):])
        else:
            self.tokenizer, content = self._files(name)
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.tokenizer.no_truncation()  # a saved tokenizer may have them on
        self.tokenizer.no_padding()
        if getattr(self.tokenizer.model, "dropout", None):
            raise BadInput(name, "the tokenizer's BPE uses dropout, so equal text would give different tokens: set its "
                                 "dropout to null")
        self.vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self.vocabulary.values()) + 1
        self.prefix, self.suffix = self._template()

    def _files(self, name):
        path = os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name
        if os.path.isdir(name) and not os.path.exists(path):
            raise BadInput(name, "tokenizer.json is missing; AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) "
                                 "of transformers writes it")
        content = _read(path)
        try:
            tokenizer = tokenizers.Tokenizer.from_str(content.decode())
        except Exception as error:  # `tokenizers` raises Exception itself
            raise BadInput(path, f"not a Hugging Face tokenizer: {error}") from None
        if os.path.isdir(name):
            config = os.path.join(name, "tokenizer_config.json")
            if os.path.exists(config):
                try:
                    eos = json.loads(_read(config)).get("eos_token")
                except (ValueError, AttributeError):
                    raise BadInput(config, "not a JSON object") from None
                self.eos = eos.get("content") if isinstance(eos, dict) else eos
        return tokenizer, content

    def _template(self):
        """The ids that the post-processor adds before and after a text. They must be equal for two different texts."""
        found = set()
        for text in ("a", "b c"):
            bare = self.tokenizer.encode(text, add_special_tokens=False).ids
            whole = self.tokenizer.encode(text).ids
            starts = [i for i in range(len(whole) - len(bare) + 1) if whole[i:i + len(bare)] == bare]
            if not starts:
                raise BadInput(self.name, "the post-processor does more than add tokens before and after a text: "
                                          "give --no-special-tokens")
            found.add((tuple(whole[:starts[0]]), tuple(whole[starts[0] + len(bare):])))
        if len(found) > 1:
            raise BadInput(self.name, "the post-processor adds different tokens to different texts: give --no-special-tokens")
        prefix, suffix = found.pop()
        return list(prefix), list(suffix)

    def end_of_document(self, wanted):
        """The id of the end-of-document token, or None. wanted: a token, an id, "none", or None for the tokenizer's."""
        if wanted == "none":
            return None
        if wanted is None:
            known = [self.eos] if self.eos else [token for token in KNOWN_ENDS if token in self.vocabulary]
            if len(known) != 1 or known[0] not in self.vocabulary:
                raise Usage(f"--end-of-document: {self.name} has no end-of-sequence token: "
                            "give a token, an id or none")
            return self.vocabulary[known[0]]
        if wanted.isdecimal():  # an id, although digits are tokens too
            if int(wanted) < self.vocab_size:
                return int(wanted)
            raise Usage(f"--end-of-document {wanted}: the last id of {self.name} is {self.vocab_size - 1}")
        if wanted in self.vocabulary:
            return self.vocabulary[wanted]
        raise Usage(f"--end-of-document {wanted}: not a token of {self.name}")

    def dtype(self, wanted):
        """The type of tokens on disk: uint16 or int32."""
        if wanted == "uint16" and self.vocab_size > 1 << 16:
            raise Usage(f"--dtype uint16: {self.name} has tokens up to {self.vocab_size - 1:,}, uint16 holds at most 65,535: "
                        "give int32 or auto")
        if wanted == "auto":
            wanted = "uint16" if self.vocab_size < UINT16_BELOW else "int32"
        return np.dtype(wanted)

    def text(self, token):
        """One token as text; None for an id that is not in the vocabulary."""
        return self.tokenizer.id_to_token(int(token))

    def manifest(self, dtype, end):
        """The tokenizer's keys of PREFIX.smp.json."""
        return {"format": "smp-data", "version": 1, "tokenizer": {"name": self.name, "sha256": self.sha256},
                "vocab_size": self.vocab_size, "end_of_document": end, "dtype": dtype.name}
