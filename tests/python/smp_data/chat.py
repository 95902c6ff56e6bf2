"""smp-data chat: tokens and masks of conversations."""
import json
import os
import pathlib
import unittest

import numpy as np
from support import END, Case, bpe
from tokenizing import megatron

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
MARKED = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
          "{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}"
          "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
# As Qwen 3: thoughts stay in the last answer alone.
FORGETS = CHATML.replace("m['content'] +", "(m['content'] if loop.last else m['content'].split('</think>')[-1]) +")
INST = ("{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
        "{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'] + eos_token }}"
        "{% else %}{{ raise_exception('only users and assistants here') }}{% endif %}{% endfor %}")
TALK = [{"role": "system", "content": "quick"}, {"role": "user", "content": "the fox?"},
        {"role": "assistant", "content": "isn't red\n\n"}, {"role": "user", "content": "tail"},
        {"role": "assistant", "content": "世界 it'll do"}]


class Chat(Case):
    def folder(self, template, name="tok", where="config"):
        tokenizer = bpe(special=(END, "<|im_start|>", "<|im_end|>"))
        config = {"chat_template": template} if where == "config" else {}
        self.tokenizer_folder(tokenizer, name, **config)
        if where == "file":
            self.write(f"{name}/chat_template.jinja", template)
        self.tokenizer = tokenizer
        return name

    def conversations(self, *talks, **more):
        return self.write("a.jsonl", "".join(json.dumps({"messages": talk, "id": 3} | more) + "\n" for talk in talks))

    def texts(self, prefix="c"):
        """Of each document the text, and a list of what counts."""
        mask, place, found = np.fromfile(f"{prefix}.mask.bin", np.uint8), 0, []
        for tokens in megatron(prefix):
            counts = mask[place:place + len(tokens)]
            place += len(tokens)
            stretches = np.split(np.arange(len(tokens)), np.flatnonzero(np.diff(counts)) + 1)
            decode = lambda ids: self.tokenizer.decode(ids, skip_special_tokens=False)
            found.append((decode(tokens), [decode([tokens[i] for i in part]) for part in stretches if counts[part[0]]]))
        self.assertEqual(place, len(mask))
        return found

    def test_answers_and_their_end_count(self):
        expected = ["isn't red\n\n<|im_end|>", "世界 it'll do<|im_end|>"]
        for template, where in ((CHATML, "config"), (CHATML, "file"), (MARKED, "config")):
            name = self.folder(template, f"tok{len(os.listdir())}", where)
            self.conversations(TALK, TALK[:3])
            out = self.good("chat", "--tokenizer", name, "--out", "c", "a.jsonl", "--overwrite", "--workers", 2)
            self.assertIn("those of the template's {% generation %}" if template == MARKED else "those that the template adds for each answer", out)
            (whole, counted), (_, first) = self.texts()
            self.assertEqual((counted, first), (expected, expected[:1]))
            self.assertEqual(whole, "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in TALK))
            self.good("check", "c")
            manifest = json.loads(pathlib.Path("c.smp.json").read_text())
            self.assertEqual((manifest["has_mask"], manifest["documents"], manifest["end_of_document"]), (True, 2, None))
            import transformers
            auto = transformers.AutoTokenizer.from_pretrained(name)
            self.assertEqual(megatron("c")[0], auto.apply_chat_template(TALK, tokenize=True, return_dict=True)["input_ids"])

    def test_a_template_without_a_generation_prompt(self):
        self.folder(INST)
        self.conversations(TALK[1:])
        self.good("chat", "--tokenizer", "tok", "--out", "c", "a.jsonl")
        self.assertEqual(self.texts()[0][1], [" isn't red\n\n" + END, " 世界 it'll do" + END])

    def test_thoughts_that_are_forgotten(self):
        self.folder(FORGETS)
        self.conversations(TALK)
        self.good("chat", "--tokenizer", "tok", "--out", "c", "a.jsonl")
        thinks = [*TALK[:2], {"role": "assistant", "content": "<think>hm</think>red"}, *TALK[3:]]
        self.conversations(TALK, thinks)
        self.refused(3, "a.jsonl:2: message 3: the text up to the answer's end changes when messages follow, so the answer's tokens "
                        "are unknown: use a template that marks them with {% generation %}",
                     "chat", "--tokenizer", "tok", "--out", "c", "a.jsonl", "--overwrite")

    def test_a_token_across_the_begin_of_an_answer(self):
        self.folder(CHATML)
        merges = {"role": "assistant", "content": "\n  return"}
        self.conversations([TALK[1], merges])
        token = self.tokenizer.token_to_id("ĊĊĠ")
        self.refused(3, f"a.jsonl:1: message 2: token {token} ('ĊĊĠ') lies partly in the answer and partly in the text "
                        "beside it", "chat", "--tokenizer", "tok", "--out", "c", "a.jsonl")

    def test_conversations_that_are_refused(self):
        self.folder(INST)
        for talk, text in (
                ("hello", "expected 'messages' to be a list of {\"role\", \"content\"}"), ([], "expected 'messages' to be a list of "
                                                                                        "{\"role\", \"content\"}"),
                ([TALK[1], {"content": "x"}], 'message 2 has no "role"'), ([["user", "x"]], 'message 1 has no "role"'),
                ([{"role": "user", "content": None}], 'message 1 has no string "content"'),
                ([{"role": "user", "content": [{"type": "text"}]}], 'message 1 has no string "content"'),
                ([TALK[1]], 'no message has the role "assistant", so no token would count in the loss'),
                (TALK, "the chat template rejects the conversation: only users and assistants here")):
            self.conversations(TALK[1:], talk)
            self.refused(3, f"a.jsonl:2: {text}", "chat", "--tokenizer", "tok", "--out", "c", "a.jsonl", "--overwrite")
        self.write("a.jsonl", '{"conversations": []}\n')
        self.refused(3, "a.jsonl:1: no key 'messages'; the keys are conversations (--json-key)",
                     "chat", "--tokenizer", "tok", "--out", "c", "a.jsonl", "--overwrite")
        self.write("a.txt", "x")
        self.refused(2, "smp-data: a.txt: smp-data chat reads .jsonl only",
                     "chat", "--tokenizer", "tok", "--out", "c", "a.txt", "--overwrite")

    def test_templates_that_are_missing_or_mark_nothing(self):
        self.conversations(TALK)
        self.refused(3, "none: no such file", "chat", "--tokenizer", "none", "--out", "c", "a.jsonl")
        self.tokenizer_folder(name="bare")
        self.refused(3, "bare: the tokenizer has no chat template: chat_template.jinja, or chat_template in "
                        "tokenizer_config.json", "chat", "--tokenizer", "bare", "--out", "c", "a.jsonl")
        self.refused(3, "bare/tokenizer.json: a chat template is in the same folder: give the folder instead of tokenizer.json",
                     "chat", "--tokenizer", "bare/tokenizer.json", "--out", "c", "a.jsonl")
        self.folder("{% for m in messages %}{{ m['content'] }}{% if false %}{% generation %}x{% endgeneration %}{% endif %}"
                    "{% endfor %}", "empty")
        self.refused(3, "a.jsonl:1: the chat template marks no token of the answers, so no token would count in the loss",
                     "chat", "--tokenizer", "empty", "--out", "c", "a.jsonl")
        self.folder("{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}", "mute")
        self.refused(3, "a.jsonl:1: message 3: the chat template adds no text for the answer",
                     "chat", "--tokenizer", "mute", "--out", "c", "a.jsonl", "--overwrite")

    def test_tools(self):
        self.folder("{% if tools %}{{ tools[0]['function']['name'] }}{% endif %}" + CHATML)
        self.conversations(TALK[1:3], tools=[{"type": "function", "function": {"name": "quick"}}])
        self.good("chat", "--tokenizer", "tok", "--out", "c", "a.jsonl")
        self.assertTrue(self.texts()[0][0].startswith("quick<|im_start|>user"))


if __name__ == "__main__":
    unittest.main()
