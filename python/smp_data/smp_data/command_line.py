"""The command line of smp-data."""
import argparse
import errno
import os
import sys

from smp_data import errors
from smp_data.workers import cores

TOKENIZERS = """tokenizers:
  FOLDER            a folder with tokenizer.json, as save_pretrained of transformers or `smp-data vocabulary` writes it
  tokenizer.json    that file alone
  gpt2-bytes        each byte is a token, by the first 256 ids of GPT-2's vocabulary; <|endoftext|> is 256
  words:FILE        words between white space; FILE holds one a line, <unk> among them, the first has id 0
"""
TOKENIZE = """examples:
  smp-data tokenize --tokenizer llama/ --out data/corpus in/*.jsonl
  smp-data tokenize --tokenizer gpt2/tokenizer.json --out data/wiki --json-key text wiki.parquet
  smp-data tokenize --tokenizer words/ --out data/wikitext wiki.train.tokens
  smp-data tokenize --tokenizer bpe/ --out data/code --skip-empty 'src/**/*.py'

A command that was killed goes on after the last whole input file when it is given again.

""" + TOKENIZERS
VOCABULARY = """examples:
  smp-data vocabulary --kind bpe --size 8192 --out bpe 'src/**/*.py' --skip-empty
  smp-data vocabulary --kind words --out words wiki.train.tokens
  smp-data vocabulary --kind words --size 33278 --out words wiki-train.parquet
"""
CHAT = """examples:
  smp-data chat --tokenizer llama/ --out data/chat conversations.jsonl

Each line holds {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}, and "tools" if
the template takes them. Other keys are not read.
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
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


_count.__name__ = "number"


def _inputs(parser, key, key_help):
    parser.add_argument("inputs", nargs="+", metavar="INPUT",
                        help="files, folders or quoted patterns: .jsonl, .parquet, everything else is text")
    parser.add_argument("--json-key", default=key, metavar="KEY", help=key_help)
    parser.add_argument("--skip-empty", action="store_true", help="leave out files of no bytes, instead of an error")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")


def _corpus(parser):
    parser.add_argument("--out", required=True, metavar="PREFIX", help="writes PREFIX.bin, PREFIX.idx, PREFIX.smp.json")
    parser.add_argument("--dtype", choices=["auto", "uint16", "int32"], default="auto",
                        help="of tokens on disk (auto: uint16 if the vocabulary is below 65,500)")
    parser.add_argument("--workers", type=_count, default=cores(), metavar="N", help="processes (default: %(default)s, "
                        "the CPUs that this process may use)")


def parser():
    top = Parser(prog="smp-data", description="From files to tokens that smp, Megatron-LM and others train on.",
                 epilog="smp-data COMMAND --help shows options and examples; docs/smp-data.md says more.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name, text, epilog):
        return commands.add_parser(name, help=text, description=text, epilog=epilog,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)

    one = command("tokenize", "files of text to one corpus of tokens", TOKENIZE)
    one.add_argument("--tokenizer", required=True, help="see below")
    _corpus(one)
    _inputs(one, "text", "key of the text in .jsonl, column in .parquet (default: text)")
    one.add_argument("--end-of-document", metavar="TOKEN|ID|none",
                     help="put behind each document (default: the tokenizer's end-of-sequence token)")
    one.add_argument("--no-special-tokens", dest="special_tokens", action="store_false",
                     help="without what the tokenizer's template puts around a text, such as <s>")
    one.add_argument("--documents", choices=["file", "line"], default="file",
                     help="what a document of a text file is (default: file)")

    one = command("vocabulary", "make a tokenizer from texts", VOCABULARY)
    one.add_argument("--kind", choices=["bpe", "words"], required=True,
                     help="bpe: byte-level, as GPT-2's; words: between white space, with <unk> and <eos>")
    one.add_argument("--size", type=_count, metavar="N", help="tokens of the vocabulary (words: default all)")
    one.add_argument("--min-count", type=_count, default=1, metavar="N", help="words met less often are <unk>")
    one.add_argument("--out", required=True, metavar="FOLDER", help="writes tokenizer.json, tokenizer_config.json and, of "
                     "words, words.txt")
    _inputs(one, "text", "key of the text in .jsonl, column in .parquet (default: text)")

    one = command("chat", "conversations through a chat template to tokens and masks", CHAT)
    one.add_argument("--tokenizer", required=True, metavar="FOLDER", help="tokenizer with a chat template")
    _corpus(one)
    _inputs(one, "messages", "key of the messages (default: messages)")

    one = command("show", "print a document of a corpus", SHOW)
    one.add_argument("prefix", metavar="PREFIX")
    one.add_argument("--document", type=int, default=0, metavar="N", help="counted from 0 (default)")
    one.add_argument("--tokenizer", help="where the tokenizer is now (default: where it was)")

    one = command("check", "compare sizes, pointers, tokens, masks and manifest of a corpus", CHECK)
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
        return _end(errors.INTERRUPTED, "smp-data: interrupted; the same command goes on after the last whole input file")
    except BrokenPipeError:  # `smp-data show ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.FAILURE
    except OSError as error:
        place = error.filename or getattr(options, "out", None) or options.prefix
        room = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        more = "; the same command goes on when there is room" if room else ""
        return _end(errors.FAILURE, f"{place}: {error.strerror or error}{more}")


def main_of_process():
    sys.exit(main(sys.argv[1:]))
