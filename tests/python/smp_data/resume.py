"""Commands that end in the middle go on after the last whole file, and what they write is the same."""
import fcntl
import json
import os
import pathlib
import resource
import signal
import subprocess
import time
import unittest

from support import ROOT, Case, bpe, sentences
from tokenizers import pre_tokenizers

FILES = ("c.bin", "c.idx", "c.smp.json")


def contents(prefix="c"):
    return [pathlib.Path(name.replace("c.", f"{prefix}.", 1)).read_bytes() for name in FILES]


class Resume(Case):
    def setUp(self):
        super().setUp()
        self.tokenizer_folder(bpe())
        self.texts = sentences(60)
        for i in range(3):
            self.write_jsonl(f"{i}.jsonl", self.texts[20 * i:20 * i + 20])
        self.arguments = ["tokenize", "--tokenizer", "tok", "--out", "c", "0.jsonl", "1.jsonl", "2.jsonl"]

    def stopped_in_the_third(self):
        """Leaves what the first two files gave, and the third file good again."""
        good = pathlib.Path("2.jsonl").read_bytes()
        status = os.stat("2.jsonl")
        self.write("2.jsonl", good + b"x\n")
        self.refused(3, "2.jsonl:21: not valid JSON: Expecting value at column 1", *self.arguments)
        self.write("2.jsonl", good)
        os.utime("2.jsonl", ns=(status.st_mtime_ns, status.st_mtime_ns))
        self.assertFalse(any(map(os.path.exists, FILES)))

    def undisturbed(self):
        self.good(*[argument if argument != "c" else "u" for argument in self.arguments])
        return contents("u")

    def test_goes_on_after_the_last_whole_file(self):
        self.stopped_in_the_third()
        out = self.good(*self.arguments)
        self.assertIn("c.state.json; continuing after 2 of 3 input files\n", out)
        self.assertEqual(contents(), self.undisturbed())
        self.assertEqual([name for name in sorted(os.listdir()) if name.startswith("c.")], list(FILES))

    def test_what_was_written_behind_the_state_is_cut_off(self):
        self.stopped_in_the_third()
        for name in ("c.bin.partial", "c.lengths.partial"):
            with open(name, "ab") as file:
                file.write(b"half")
        self.good(*self.arguments)
        self.assertEqual(contents(), self.undisturbed())

    def test_other_inputs_and_options_are_refused(self):
        self.stopped_in_the_third()
        begun = "smp-data: c was started with another {0} and is not finished: give the same {0}, or --overwrite to start again"
        self.refused(2, begun.format("end-of-document"), *self.arguments, "--end-of-document", "none")
        self.refused(2, begun.format("dtype"), *self.arguments, "--dtype", "int32")
        other = "smp-data: 1.jsonl was input 2 when this corpus was started, but the file or the order has changed: " \
                "give the same inputs, or --overwrite to start again"
        self.refused(2, other, *[argument for argument in self.arguments if argument != "1.jsonl"])
        self.refused(2, other, *self.arguments[:5], "0.jsonl")
        status = os.stat("1.jsonl")
        text = pathlib.Path("1.jsonl").read_text()
        self.write("1.jsonl", text.replace("the", "THE", 1))
        os.utime("1.jsonl", ns=(status.st_mtime_ns, status.st_mtime_ns))  # one letter, same size and time
        self.refused(2, other, *self.arguments)
        self.good(*self.arguments, "--end-of-document", "none", "--overwrite")
        self.good("check", "c")

    def test_a_broken_state(self):
        self.stopped_in_the_third()
        state = pathlib.Path("c.state.json").read_text()
        for broken in ("", "{", "[]", "{}"):
            self.write("c.state.json", broken)
            self.refused(3, "c.state.json: not a state file of smp-data: remove it to start again", *self.arguments)
        self.write("c.state.json", state)
        os.truncate("c.bin.partial", 5)
        self.refused(3, "c.bin.partial: shorter than recorded in c.state.json; remove c.state.json to start again", *self.arguments)

    def test_ended_while_files_got_their_names(self):
        """Whatever of the last renames was done."""
        from smp_data import corpus
        undisturbed = self.undisturbed()
        calls = 0
        real = os.replace

        class Killed(BaseException):
            pass

        def replace(*arguments):
            nonlocal calls
            calls -= 1
            if calls == 0:
                raise Killed
            real(*arguments)

        for stop in range(1, 8):
            calls = stop
            corpus.os.replace = replace
            try:
                self.run_command(*self.arguments, "--overwrite")
                finished = True
            except Killed:
                finished = False
            finally:
                corpus.os.replace = real
            if not finished:
                # Another command line than the one that finishes it would be refused; this one only gives names.
                self.assertFalse(os.path.exists("c.smp.json") and os.path.exists("c.bin.partial") and stop > 4)
                self.good(*self.arguments, "--overwrite")
            self.assertEqual(contents(), undisturbed)
            self.assertFalse(os.path.exists("c.state.json"))
        self.assertTrue(finished)

    def test_a_file_that_changes_while_it_is_read(self):
        from smp_data import tokenize
        real = tokenize.os.stat

        def stat(path, *rest, **named):
            if path == "1.jsonl" and os.path.exists("c.bin.partial"):
                with open(path, "a") as file:
                    file.write("\n")
            return real(path, *rest, **named)

        tokenize.os.stat = stat
        try:
            self.refused(3, "1.jsonl: the file changed while it was read: start again when it is complete", *self.arguments)
        finally:
            tokenize.os.stat = real

    def test_two_at_once(self):
        with open("c.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.refused(1, "smp-data: c is being written by another smp-data process", *self.arguments)
        self.good(*self.arguments)

    def test_a_limit_of_file_sizes_as_a_full_disk(self):
        command = [ROOT / "scripts/smp-data", *self.arguments]
        for i in range(3):
            self.write_jsonl(f"{i}.jsonl", sentences(400, seed=i))
        done = subprocess.run(command, capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)))
        self.assertEqual((done.returncode, done.stderr), (1, "c: File too large; free space, then run the same command to continue\n"))
        self.assertFalse(any(map(os.path.exists, FILES)))
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(contents(), self.undisturbed())

    def slow(self, size):
        """A command that takes long enough to be met in the middle: its tokenizer takes each text whole."""
        self.tokenizer_folder(bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)), f"slow{size}")
        names = [self.write_jsonl(f"{size}-{i}.jsonl", sentences(size, seed=i)) for i in range(6)]
        return ["tokenize", "--tokenizer", f"slow{size}", "--out", "c", *names]

    def ended_by(self, end, code):
        for size in (1000, 3000, 9000, 27000):
            arguments = self.slow(size)
            process = subprocess.Popen([ROOT / "scripts/smp-data", *arguments, "--overwrite"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True, start_new_session=True)
            while process.poll() is None and not os.path.exists("c.state.json"):
                time.sleep(0.002)
            workers = []
            try:
                workers = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            except OSError:
                pass
            if process.poll() is None:
                end(process)
            error = process.communicate()[1]
            if process.returncode == 0:
                continue  # it was done already
            self.assertEqual(process.returncode, code)
            self.assertTrue(workers)
            until = time.monotonic() + 60
            while any(os.path.exists(f"/proc/{pid}") and pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
                      for pid in workers) and time.monotonic() < until:
                time.sleep(0.01)
            self.assertLess(time.monotonic(), until, "workers are left")
            self.assertFalse(any(map(os.path.exists, FILES)))
            self.assertIn("continuing after", self.good(*arguments))
            whole = contents()
            self.good(*arguments, "--overwrite")
            self.assertEqual(whole, contents())
            return error
        self.fail("each command was done before it was met")

    def test_killed(self):
        self.ended_by(lambda process: process.kill(), -signal.SIGKILL)

    def test_interrupted(self):
        error = self.ended_by(lambda process: os.killpg(process.pid, signal.SIGINT), 130)
        self.assertEqual(error, "smp-data: interrupted; the same command continues after the last complete input file\n")

    def test_a_worker_is_killed(self):
        def kill_worker(process):
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)
        error = self.ended_by(kill_worker, 1)
        self.assertEqual(error, "smp-data: a worker process was killed; if memory ran out, lower --workers; the same "
                                "command continues after the last complete file\n")


if __name__ == "__main__":
    unittest.main()
