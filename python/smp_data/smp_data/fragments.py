"""Where text can be cut so that the tokens of the parts are those of the whole.

`tokenizers` spends nearly all of its time on splitting text into words, so text is cut into fragments of about a word
here, and each different fragment goes through `tokenizers` once. A cut between two characters is exact if the
pre-tokenizer splits there whatever stands further left or right. The regular expressions below split between ASCII
characters of these kinds (letter, digit, space, end of line, apostrophe, other sign), left of the stroke | right of it:

  all       letter|digit  letter|space  letter|end of line  letter|other   digit|letter  digit|space ...  other|digit
            other|space
  GPT-2     also other|letter (the rest of them join one sign before a word to it) and other|end of line

They look ahead only in white space, `\\s+(?!\\S)`; no cut follows white space, so a fragment holds it whole with what
comes behind it. Apostrophes begin contractions and are left alone. NFC joins nothing across a cut. White-space
splitting can be cut before any white space. Tokenizers of another kind are not cut."""
import json
import re

import numpy as np

from smp_data.tokenizer import word_tokenizer

_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
EXPRESSIONS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
    rf"{_ENDS}|{_WORDS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",  # cl100k, Llama 3
    rf"{_ENDS}|{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",  # Qwen 2 and 3
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDS}?|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",  # o200k
)
GPT2 = EXPRESSIONS[0]

# Kinds of bytes; of characters beyond ASCII nothing is known.
BEYOND, LETTER, DIGIT, SPACE, LINE, APOSTROPHE, OTHER = range(7)


def _kinds():
    kinds = np.full(256, OTHER, np.uint8)
    kinds[128:] = BEYOND
    for byte in range(128):
        if chr(byte).isalpha():
            kinds[byte] = LETTER
        elif chr(byte).isdigit():
            kinds[byte] = DIGIT
    kinds[list(b" \t\x0b\x0c")] = SPACE
    kinds[list(b"\r\n")] = LINE
    kinds[ord("'")] = APOSTROPHE
    kinds[list(range(0x1c, 0x20))] = BEYOND  # separators, which are white space to some
    return kinds


def _cuts(pairs):
    """bool [8 * kind + kind]: whether text is cut between them."""
    table = np.zeros(64, bool)
    for left, rights in pairs.items():
        for right in rights:
            table[8 * left + right] = True
    return table


KINDS = _kinds()
_ALL = {LETTER: (DIGIT, SPACE, LINE, OTHER), DIGIT: (LETTER, SPACE, LINE, OTHER), OTHER: (DIGIT, SPACE)}
_WORDS_CUTS = _cuts(_ALL)
_GPT2_CUTS = _cuts(_ALL | {OTHER: (DIGIT, SPACE, LETTER, LINE)})
_WHITE_CUTS = _cuts({left: (SPACE, LINE) for left in (BEYOND, LETTER, DIGIT, APOSTROPHE, OTHER)})


def _expression(step):
    """By which of EXPRESSIONS a pre-tokenizer, as tokenizer.json has it, splits text; None if by none or otherwise too."""
    if step["type"] == "ByteLevel":
        return GPT2 if step["use_regex"] and not step["add_prefix_space"] else None
    pattern = step["pattern"].get("Regex") if step["type"] == "Split" else None
    # Each matches all of a text, so to isolate matches and to remove what is between them are the same.
    ways = (("Isolated", False), ("Removed", True))
    return pattern if pattern in EXPRESSIONS and (step["behavior"], step["invert"]) in ways else None


def _keeps_words(step, is_last):
    """Whether it splits nothing that spans a cut, nor adds anything: digits alone; bytes as letters, behind all others, to
    whom a space would be a letter."""
    return step["type"] == "Digits" or (
        is_last and step["type"] == "ByteLevel" and not step["add_prefix_space"] and not step["use_regex"])


def _cuts_of(tokenizer):
    """The table of cuts that are exact for it, or None."""
    spec = json.loads(tokenizer.to_str())
    step, normalizer = spec["pre_tokenizer"], spec["normalizer"]
    if step is None:
        return None
    if step["type"] == "WhitespaceSplit" and spec["model"]["type"] == "WordLevel":
        ours = json.loads(word_tokenizer(["<unk>", "<eos>"]).to_str())["normalizer"]
        return _WHITE_CUTS if normalizer in (None, ours) else None
    if normalizer is not None and normalizer["type"] != "NFC":
        return None
    steps = step["pretokenizers"] if step["type"] == "Sequence" else [step]
    expressions = [_expression(one) for one in steps]
    used = [expression for expression in expressions if expression]
    if len(used) == 1 and all(expression or _keeps_words(one, one is steps[-1])
                              for expression, one in zip(expressions, steps)):
        return _GPT2_CUTS if used == [GPT2] else _WORDS_CUTS
    return None


class Cutter:
    """Cuts bytes of UTF-8. possible: whether texts of this tokenizer can be cut at all."""

    def __init__(self, tokenizer):
        self.table = _cuts_of(tokenizer)
        self.possible = self.table is not None
        added = [token.content.encode() for token in tokenizer.get_added_tokens_decoder().values()]
        # Added tokens are taken out of a text before all else, so no cut may fall into one.
        self.added = re.compile(b"|".join(map(re.escape, sorted(added, reverse=True)))) if added else None
        self.reach = max(map(len, added), default=0)

    def cuts(self, buffer):
        """Places in uint8 [n] at which a fragment begins, but for the first: bool [n]."""
        kinds = KINDS[buffer]
        marks = np.zeros(len(buffer), bool)
        marks[1:] = self.table[8 * kinds[:-1] + kinds[1:]]
        return marks

    def first_cut(self, data):
        """The first place in bytes where a text can be cut that is not near an added token, or None."""
        for place in np.flatnonzero(self.cuts(np.frombuffer(data, np.uint8))):
            around = data[max(0, place - self.reach):place + self.reach]
            if not (self.added and self.added.search(around)):
                return int(place)
        return None
