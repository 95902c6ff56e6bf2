"""The command line of smp-data."""
import argparse
import errno
import os
import sys

from smp_data import errors
from smp_data.workers import cores

TOKENIZERS = """tokenizers:
  FOLDER            a folder with tokenizer.json, as save_pretrained of transformers or `smp-data vocabulary` writes it
  tokenizer.json    a file of `tokenizers`
  gpt2-bytes        one token per byte: the first 256 ids of GPT-2's vocabulary; <|endoftext|> is 256
  words:FILE        one token per word between white space; FILE lists one word a line, with <unk>; the first has id 0
"""
TOKENIZE = """examples:
  smp-data tokenize --tokenizer llama/ --out data/corpus in/*.jsonl
  smp-data tokenize --tokenizer gpt2/tokenizer.json --out data/wiki --json-key text wiki.parquet
  smp-data tokenize --tokenizer words/ --out data/wikitext wiki.train.tokens
  smp-data tokenize --tokenizer bpe/ --out data/code --skip-empty 'src/**/*.py'

The same command continues an interrupted one after the last complete input file.

""" + TOKENIZERS
VOCABULARY = """examples:
  smp-data vocabulary --kind bpe --size 8192 --out bpe 'src/**/*.py' --skip-empty
  smp-data vocabulary --kind words --out words wiki.train.tokens
  smp-data vocabulary --kind words --size 33278 --out words wiki-train.parquet
"""
CHAT = """examples:
  smp-data chat --tokenizer llama/ --out data/chat conversations.jsonl

Each line holds {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}, and optionally
"tools" for templates that use them. Other keys are ignored.
"""
SHOW = """examples:
  smp-data show data/corpus --document 3
"""
CHECK = """examples:
  smp-data check data/corpus
"""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"{self.prog}: {message}\n{self.prog} --help shows examples", file=sys.stderr)
        sys.exit(errors.USAGE)


def _count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


_count.__name__ = "number"


def _inputs(parser, key, key_help):
    parser.add_argument("inputs", nargs="+", metavar="INPUT",
                        help="files, folders or quoted patterns; .jsonl and .parquet by suffix, all other files as text")
    parser.add_argument("--json-key", default=key, metavar="KEY", help=key_help)
    parser.add_argument("--skip-empty", action="store_true", help="skip empty files instead of failing")
    parser.add_argument("--overwrite", action="store_true", help="replace existing output")


def _corpus(parser):
    parser.add_argument("--out", required=True, metavar="PREFIX", help="output files: PREFIX.bin, PREFIX.idx, PREFIX.smp.json")
    parser.add_argument("--dtype", choices=["auto", "uint16", "int32"], default="auto",
                        help="type of tokens on disk (auto: uint16 if the vocabulary is below 65,500)")
    parser.add_argument("--workers", type=_count, default=cores(), metavar="N", help="number of worker processes "
                        "(default: %(default)s, the CPUs available to this process)")


def parser():
    top = Parser(prog="smp-data", description="Turns files of text into token files for smp and Megatron-LM.",
                 epilog="smp-data COMMAND --help shows options and examples; see also docs/smp-data.md.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name, text, epilog):
        return commands.add_parser(name, help=text, description=text, epilog=epilog,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)

    one = command("tokenize", "tokenize files of text into one corpus", TOKENIZE)
    one.add_argument("--tokenizer", required=True, help="tokenizer: one of those listed below")
    _corpus(one)
    _inputs(one, "text", "key of the text in .jsonl, column in .parquet (default: text)")
    one.add_argument("--end-of-document", metavar="TOKEN|ID|none",
                     help="token to append to each document (default: the tokenizer's end-of-sequence token)")
    one.add_argument("--no-special-tokens", dest="special_tokens", action="store_false",
                     help="do not add the tokens of the tokenizer's template, such as <s>")
    one.add_argument("--documents", choices=["file", "line"], default="file",
                     help="whether a document is a whole text file or one line of it (default: file)")

    one = command("vocabulary", "make a tokenizer from texts", VOCABULARY)
    one.add_argument("--kind", choices=["bpe", "words"], required=True,
                     help="bpe: byte-level BPE, as in GPT-2; words: words between white space, with <unk> and <eos>")
    one.add_argument("--size", type=_count, metavar="N", help="size of the vocabulary in tokens (for words, default: all words)")
    one.add_argument("--min-count", type=_count, default=1, metavar="N", help="words that occur less often become <unk>")
    one.add_argument("--out", required=True, metavar="FOLDER", help="folder for tokenizer.json, tokenizer_config.json "
                     "and, with --kind words, words.txt")
    _inputs(one, "text", "key of the text in .jsonl, column in .parquet (default: text)")

    one = command("chat", "tokenize conversations with a chat template, with loss masks", CHAT)
    one.add_argument("--tokenizer", required=True, metavar="FOLDER", help="tokenizer with a chat template")
    _corpus(one)
    _inputs(one, "messages", "key of the messages in .jsonl (default: messages)")

    one = command("show", "print a document of a corpus", SHOW)
    one.add_argument("prefix", metavar="PREFIX")
    one.add_argument("--document", type=int, default=0, metavar="N", help="number of the document, from 0 (default: 0)")
    one.add_argument("--tokenizer", help="path of the tokenizer (default: its path when the corpus was made)")

    one = command("check", "check that sizes, pointers, tokens, masks and manifest of a corpus agree", CHECK)
    one.add_argument("prefix", metavar="PREFIX")
    return top


def _run(options):
    # Each command loads what it needs: transformers alone takes two seconds.
    if options.command == "tokenize":
        from smp_data import tokenize
        tokenize.run(options)
    elif options.command == "vocabulary":
        from smp_data import vocabulary
        vocabulary.run(options)
    elif options.command == "chat":
        from smp_data import chat
        chat.run(options)
    else:
        from smp_data import reading
        (reading.show if options.command == "show" else reading.check)(options)


def _end(code, text):
    print(text, file=sys.stderr, flush=True)
    return code


def main(arguments):
    options = parser().parse_args(arguments)
    try:
        _run(options)
        sys.stdout.flush()
        return 0
    except errors.Usage as error:
        return _end(errors.USAGE, f"smp-data: {error}")
    except errors.BadInput as error:
        return _end(errors.BAD_INPUT, error)
    except errors.Failure as error:
        return _end(errors.FAILURE, f"smp-data: {error}")
    except KeyboardInterrupt:
        return _end(errors.INTERRUPTED, "smp-data: interrupted; the same command continues after the last complete input file")
    except BrokenPipeError:  # `smp-data show ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.FAILURE
    except OSError as error:
        place = error.filename or getattr(options, "out", None) or options.prefix
        room = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        more = "; free space, then run the same command to continue" if room else ""
        return _end(errors.FAILURE, f"{place}: {error.strerror or error}{more}")


def main_of_process():
    sys.exit(main(sys.argv[1:]))
