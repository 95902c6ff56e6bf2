"""smp-data chat: encodes conversations to tokens and masks with the tokenizer's chat template.

A mask is 1 for the tokens of an assistant's answer, including its end-of-turn token: the tokens that the model learns to
write. Some templates mark answers with {% generation %}. With other templates, the text before answer i is the template's
text of messages 0 .. i-1 with the generation prompt, as at inference; the answer is the text that messages 0 .. i add to
it. The whole conversation must begin with both texts."""
import os
import re

import numpy as np

from smp_data import inputs
from smp_data.corpus import Corpus
from smp_data.documents import bad_line, objects
from smp_data.errors import BadInput, Usage
from smp_data.tokenize import told, write
from smp_data.tokenizer import Named
from smp_data.workers import Workers

MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")


class Refused(Exception):
    """A conversation that cannot be encoded."""


class ChatEncoder:
    def __init__(self, folder):
        if not os.path.isdir(folder):
            raise BadInput(folder, "a chat template is in the same folder: give the folder instead of tokenizer.json")
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
        import jinja2
        import transformers
        self.errors = (jinja2.TemplateError, TypeError, ValueError, KeyError)
        try:
            self.auto = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # of many kinds
            raise BadInput(folder, f"transformers cannot load its tokenizer: {str(error).splitlines()[0]}") from None
        if not self.auto.is_fast:
            raise BadInput(folder, "not a fast tokenizer (of the library tokenizers)")
        try:
            template = self.auto.get_chat_template()
        except ValueError:
            raise BadInput(folder, "the tokenizer has no chat template: chat_template.jinja, or chat_template in "
                                   "tokenizer_config.json") from None
        self.marked = bool(MARKED.search(template))
        self.dated = "strftime_now" in template
        self.fast = self.auto.backend_tokenizer
        self.fast.no_truncation()
        self.fast.no_padding()
        self.special = {number for number, token in self.fast.get_added_tokens_decoder().items() if token.special}
        self.vocab_size = max(self.auto.get_vocab().values()) + 1

    def encode(self, messages, tools=None):
        """Tokens (list) and mask (uint8 array) of a conversation. Raises Refused."""
        answers = self._answers(messages)
        try:
            if self.marked:
                found = self.auto.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=True,
                                                      return_assistant_tokens_mask=True)
                tokens, mask = found["input_ids"], np.array(found["assistant_masks"], np.uint8)
            else:
                tokens, mask = self._by_prefixes(messages, answers, tools)
        except self.errors as error:
            raise Refused(f"the chat template rejects the conversation: {error}") from None
        if not mask.any():
            raise Refused("the chat template marks no token of the answers, so no token would count in the loss")
        return tokens, mask

    @staticmethod
    def _answers(messages):
        """Checks all messages. Returns the indices of the assistant's messages."""
        if not isinstance(messages, list) or not messages:
            raise Refused("expected 'messages' to be a list of {\"role\", \"content\"}")
        for i, message in enumerate(messages, 1):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                raise Refused(f"message {i} has no \"role\"")
            calls = message["role"] == "assistant" and message.get("tool_calls") and message.get("content") is None
            if not isinstance(message.get("content"), str) and not calls:
                raise Refused(f"message {i} has no string \"content\"")
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if not answers:
            raise Refused("no message has the role \"assistant\", so no token would count in the loss")
        return answers

    def _text(self, messages, tools, prompt):
        return self.auto.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=prompt)

    def _by_prefixes(self, messages, answers, tools):
        whole = self._text(messages, tools, False)
        encoding = self.fast.encode(whole, add_special_tokens=False)
        tokens, offsets = np.array(encoding.ids, np.int64), np.array(encoding.offsets, np.int64).reshape(-1, 2)
        mask = np.zeros(len(tokens), np.uint8)
        for i in answers:
            before = self._text(messages[:i], tools, True) if i > 0 else ""
            behind = self._text(messages[:i + 1], tools, False)
            for text, what in ((before, "the text before the answer"), (behind, "the text up to the answer's end")):
                if not whole.startswith(text):
                    raise Refused(f"message {i + 1}: {what} changes when messages follow, so the answer's tokens "
                                  "are unknown: use a template that marks them with {% generation %}")
            begin, end = len(before), len(behind)
            if end <= begin:
                raise Refused(f"message {i + 1}: the chat template adds no text for the answer")
            inside = np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end))
            for k in (inside[0], inside[-1]) if len(inside) else ():
                if offsets[k, 0] < begin or offsets[k, 1] > end:
                    token = self.fast.id_to_token(int(tokens[k]))
                    raise Refused(f"message {i + 1}: token {tokens[k]} ({token!r}) lies partly in the answer and "
                                  "partly in the text beside it")
            mask[self._with_end_of_turn(inside, tokens, offsets, whole)] = 1
        return tokens, mask

    def _with_end_of_turn(self, inside, tokens, offsets, text):
        """Drops white space after the last special token, which the template writes, not the model."""
        last = max((k for k in range(len(inside)) if int(tokens[inside[k]]) in self.special), default=None)
        if last is not None and last + 1 < len(inside) and \
                text[offsets[inside[last], 1]:offsets[inside[-1], 1]].isspace():
            return inside[:last + 1]
        return inside


def run(options):
    named = Named(options.tokenizer)
    chat = ChatEncoder(options.tokenizer)
    named.vocab_size = max(named.vocab_size, chat.vocab_size)
    dtype = named.dtype(options.dtype)
    shards = inputs.shards_of(inputs.files_of(options.inputs), "file", options.skip_empty)
    for shard in shards:
        if shard.kind != "json":
            raise Usage(f"{shard.path}: smp-data chat reads .jsonl only")

    def encode(piece):
        tokens, masks = [], []
        for offset, found in objects(piece):
            try:
                if options.json_key not in found:
                    raise Refused(f"no key '{options.json_key}'; the keys are {', '.join(found) or 'none'} (--json-key)")
                some, mask = chat.encode(found[options.json_key], found.get("tools"))
            except Refused as error:
                raise bad_line(piece, offset, str(error)) from None
            except UnicodeEncodeError:
                raise bad_line(piece, offset, "unpaired surrogate, which UTF-8 cannot encode") from None
            tokens.append(np.array(some, dtype))
            masks.append(mask)
        lengths = np.array([len(some) for some in tokens], np.int64)
        return np.concatenate([np.zeros(0, dtype), *tokens]), lengths, np.concatenate([np.zeros(0, np.uint8), *masks])

    content = {"command": "chat", "tokenizer": named.sha256, "dtype": dtype.name, "json-key": options.json_key,
               "template": chat.auto.get_chat_template()}
    with Corpus(options.out, content, dtype, masks=True, overwrite=options.overwrite) as corpus, \
            Workers(options.workers, encode) as workers:
        print(f"{options.tokenizer}: {named.vocab_size:,} tokens; the answers' tokens are " +
              ("those of the template's {% generation %}" if chat.marked else "those that the template adds for each answer") +
              ("; the template may write today's date" if chat.dated else ""), flush=True)
        progress = write(corpus, shards, workers, lambda number, shard: inputs.pieces_of(number, shard, None))
        corpus.finish(named.manifest(dtype, None))
        print(told(corpus, progress))
