#!/usr/bin/env python3
"""Every message that refuses a job, its data or its plan is broken once by a test.

A rule added without a case fails here: the sentences of the sources below must stand in the tests'
expected files, in the errors of the cases files (*.cases), or in the strings of the tests' sources.
What fmt puts between them is left out.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAN, PLANNER = "lib/plan/src/", "lib/planner/src/"
SOURCES = [
    PLAN + name + ".cpp"
    for name in (
        "spec/checkpoint_strategy data/data_paths data/megatron_index data/mixture data/npy_header "
        "data/open_files data/token_data data/token_file data/token_manifest data/token_stream "
        "data/data_files data/image_file rules/degree_rules rules/engine_rules jobfile/field_value jobfile/forbid jobfile/job_builder "
        "jobfile/job_checks jobfile/job_data_checks jobfile/job_data_lists jobfile/job_layer_list "
        "jobfile/job_optimizer_checks jobfile/job_parallel_checks jobfile/job_list_checks jobfile/job_reader jobfile/job_source layout/layout layout/partition "
        "framework/framework_catalog framework/framework_reader text/number_text text/scalar text/strict_map planfile/plan_reader data/byte_tokens").split()
] + [PLANNER + name + ".cpp" for name in "search/check_plan choice/forbid choice/layout_rules".split()]
TESTS = ["tests/plan", "tests/planner", "tests/apps", "tests/runtime"]
WORDS = 4  # shorter pieces are parts of sentences, or names

# No messages, or such of our own mistakes.
OTHERS = [
    "python3 -c 'import sysconfig; print(sysconfig.get_path(\"stdlib\"))' 2>/dev/null",
    "a key that cannot be forbidden",
]

LITERAL = r'"((?:[^"\\\n]|\\.)*)"'


def literals(path):
    """(line, text) of each string of a source; neighbours are joined."""
    text = path.read_text(errors="replace")
    for match in re.finditer(LITERAL + r"(?:\s*" + LITERAL + ")*", text):
        line = text.count("\n", 0, match.start()) + 1
        before = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        if before.lstrip().startswith(("//", "#include")):
            continue
        joined = "".join(re.findall(LITERAL, match.group(0)))
        yield line, joined.replace('\\"', '"').replace("\\n", "\n")


def pieces(text):
    """The fixed parts of a format string."""
    text = text.replace("{{", "\1").replace("}}", "\2")
    for piece in re.split(r"\{[^{}]*\}", text):
        piece = piece.replace("\1", "{").replace("\2", "}").strip()
        piece = piece.removeprefix("training.data.path: ")
        if len(piece.split()) >= WORDS:
            yield piece


def tested():
    parts = [p.read_text(errors="replace") for p in (ROOT / "tests/golden").rglob("*.expected")]
    for cases in (ROOT / "tests/golden").rglob("*.cases"):
        parts += re.findall(r"^=== errors\n(.*?)^(?====)", cases.read_text(), flags=re.MULTILINE | re.DOTALL)
    for folder in TESTS:
        for source in sorted((ROOT / folder).rglob("*.cpp")):
            parts += [text for _, text in literals(source)]
    return "\n".join(parts)


def main():
    known = tested()
    missing, count = [], 0
    for name in SOURCES:
        for line, text in literals(ROOT / name):
            for piece in pieces(text):
                count += 1
                if piece not in known and piece not in OTHERS:
                    missing.append(f"{name}:{line}: no test breaks: {piece}")
    print("\n".join(missing) or f"{count} sentences, each in a test")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
