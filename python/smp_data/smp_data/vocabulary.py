"""smp-data vocabulary: trains a tokenizer on texts, with the trainers of `tokenizers`."""
import json
import os

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from smp_data import inputs
from smp_data.documents import read
from smp_data.errors import BadInput, Usage
from smp_data.fragments import Cutter
from smp_data.progress import Progress
from smp_data.tokenizer import END_OF_LINE, UNKNOWN_WORD, byte_tokenizer, word_tokenizer

END_OF_TEXT = "<|endoftext|>"


def _bpe(size):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, trainers.BpeTrainer(vocab_size=size, special_tokens=[END_OF_TEXT], show_progress=False,
                                          initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))


def _words(size, min_count):
    """Counts words. <unk> and <eos> are counted like other words, and get their ids afterwards."""
    return word_tokenizer([UNKNOWN_WORD, END_OF_LINE]), trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=min_count, show_progress=False, special_tokens=[])


def _with_special_words(tokenizer, size):
    """<unk>, <eos>, then words from the most to the least frequent."""
    vocabulary = tokenizer.get_vocab()
    words = [word for word in sorted(vocabulary, key=vocabulary.get) if word not in (UNKNOWN_WORD, END_OF_LINE)]
    return word_tokenizer([UNKNOWN_WORD, END_OF_LINE, *words][:size])


def _texts(shards, key, cutter):
    progress = Progress(sum(shard.bytes for shard in shards))
    for number, shard in enumerate(shards):
        for piece in inputs.pieces_of(number, shard, key, cutter):
            data, starts = read(piece, key)
            for begin, end in zip(starts[:-1], starts[1:]):
                yield data[begin:end].decode()
            progress.add(piece.bytes, 0)
    progress.clear()


def run(options):
    smallest = 257 if options.kind == "bpe" else 3
    if options.size is None and options.kind == "bpe":
        raise Usage("--size is required: the number of tokens of the vocabulary")
    if options.size is not None and options.size < smallest:
        raise Usage(f"--size {options.size}: a vocabulary of kind {options.kind} has at least {smallest} tokens")
    if options.min_count > 1 and options.kind == "bpe":
        raise Usage("--min-count needs --kind words")
    path = os.path.join(options.out, "tokenizer.json")
    if os.path.exists(path) and not options.overwrite:
        raise Usage(f"{path} exists; --overwrite replaces it")
    shards = inputs.shards_of(inputs.files_of(options.inputs), "file", options.skip_empty)
    inputs.check_columns(shards, options.json_key)
    if options.kind == "bpe":
        tokenizer, trainer = _bpe(options.size)
        cutter = Cutter(byte_tokenizer())
    else:
        tokenizer, trainer = _words(options.size or 1 << 31, options.min_count)
        cutter = Cutter(tokenizer)
    tokenizer.train_from_iterator(_texts(shards, options.json_key, cutter), trainer)
    if options.kind == "words":
        tokenizer = _with_special_words(tokenizer, options.size)
    found = tokenizer.get_vocab_size()
    if options.size is not None and found < options.size:
        raise BadInput(shards[0].path if len(shards) == 1 else f"{len(shards)} files",
                       f"the text gives {found:,} tokens, not {options.size:,}: give more text, or lower --size")
    if found == 2 and options.kind == "words":
        raise BadInput(shards[0].path, "the file has no word")
    _save(tokenizer, options)
    print(f"{path}: {found:,} tokens from {sum(shard.bytes for shard in shards) / 1e6:,.1f} MB")


def _save(tokenizer, options):
    """Writes the files that AutoTokenizer of transformers reads; for words also their list in the order of their ids."""
    os.makedirs(options.out, exist_ok=True)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
              "model_max_length": int(1e30)}
    if options.kind == "bpe":
        config |= {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT, "unk_token": END_OF_TEXT}
    else:
        config |= {"eos_token": END_OF_LINE, "unk_token": UNKNOWN_WORD}
        vocabulary = tokenizer.get_vocab()
        _write(options.out, "words.txt", "".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.get)))
    _write(options.out, "tokenizer_config.json", json.dumps(config, indent=1) + "\n")
    _write(options.out, "tokenizer.json", tokenizer.to_str(pretty=True) + "\n")


def _write(folder, name, text):
    path = os.path.join(folder, name)
    with open(f"{path}.partial", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.partial", path)
