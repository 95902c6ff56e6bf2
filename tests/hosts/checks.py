"""What the tests in this folder find, a line for each: none ends the others."""
SKIPPED = 77


class Checks:
    failed = 0

    def check(self, what, holds, text=""):
        print(f"{'ok  ' if holds else 'FAIL'}  {what}", flush=True)
        if not holds:
            self.failed += 1
            print("      " + text.replace("\n", "\n      "))
