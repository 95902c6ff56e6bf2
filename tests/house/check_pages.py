#!/usr/bin/env python3
"""Rules of the pages: README.md, CONTRIBUTING.md and docs/. Each rule prints what breaks it, as file:line.

  check_pages.py links SOURCE_DIR       links lead to files and headings that are there
  check_pages.py reachable SOURCE_DIR   links lead from docs/index.md to every page of docs/
  check_pages.py files SOURCE_DIR       files that a page or comment names are there
  check_pages.py sentences SOURCE_DIR   no sentence of a page has more than 40 words
  check_pages.py comments SOURCE_DIR    ... and none of a comment of a public header
  check_pages.py self                   the rules find what breaks them
"""
import pathlib
import re
import subprocess
import sys
import tempfile

LIMIT_WORDS = 40
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
SENTENCE_END = re.compile(r"[.!?][\"')\]*_]*\s+")
ABBREVIATIONS = ("e.g.", "i.e.", "cf.", "vs.", "etc.", "eq.", "fig.", "no.", "sec.", "approx.")


def pages(root):
    return [*sorted(root.glob("docs/**/*.md")), root / "README.md", root / "CONTRIBUTING.md"]


def without_blocks(text):
    """The page with empty lines where its fenced blocks and HTML comments are."""
    lines, inside = [], False
    for line in re.sub(r"<!--.*?-->", lambda c: "\n" * c.group().count("\n"), text, flags=re.DOTALL).splitlines():
        fence = FENCE.match(line)
        lines.append("" if fence or inside else line)
        inside ^= bool(fence)
    return lines


def links_of(page):
    """(line, target) of each link that is no address of the web."""
    for number, line in enumerate(without_blocks(page.read_text()), 1):
        for _, target in LINK.findall(line):
            if not target.startswith(("http:", "https:")):
                yield number, target
    # a link may be broken over two lines
    joined = "\n".join(without_blocks(page.read_text()))
    for match in re.finditer(r"\[[^\]]*\n[^\]]*\]\(([^)\s]+)\)", joined):
        if not match.group(1).startswith(("http:", "https:")):
            yield joined.count("\n", 0, match.start()) + 1, match.group(1)


def anchor_of(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")


def check_links(root):
    problems = []
    for page in pages(root):
        for number, link in links_of(page):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            where = f"{page.relative_to(root)}:{number}"
            if not target.exists():
                problems.append(f"{where}: no {link}")
            elif anchor and anchor not in map(anchor_of, re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE)):
                problems.append(f"{where}: no heading for {link}")
    return problems


def check_reachable(root):
    index = (root / "docs/index.md").resolve()
    if not index.exists():
        return ["docs/index.md is not there"]
    seen, ahead = {index}, [index]
    while ahead:
        page = ahead.pop()
        for _, link in links_of(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in seen:
                seen.add(target)
                ahead.append(target)
    return [f"{page.relative_to(root)}: no link leads here from docs/index.md"
            for page in sorted(root.glob("docs/**/*.md")) if page.resolve() not in seen]


def word_count(sentence):
    """Words as a reader counts them: code in backticks is one, also a list of it; a link is its text."""
    plain = re.sub(r"`+[^`]*`+(,? ((and|or) )?`+[^`]*`+)*", "code", LINK.sub(r"\1", sentence))
    return sum(1 for word in plain.split() if re.search(r"\w", word))


def sentences(paragraph):
    """(line, sentence) of a list of (line, text)."""
    text, starts = "", []
    for number, line in paragraph:
        starts.append((len(text), number))
        text += line.strip() + " "
    # Code may hold full stops.
    hidden = re.sub(r"`+[^`]*`+", lambda code: "`" + "x" * (len(code.group()) - 2) + "`", text)
    begin = 0
    ends = [m.end() for m in SENTENCE_END.finditer(hidden)
            if not hidden[:m.end()].rstrip().lower().endswith(ABBREVIATIONS)]
    for end in [*ends, len(text)]:
        if text[begin:end].strip():
            yield max(number for start, number in starts if start <= begin), text[begin:end].strip()
        begin = end


def paragraphs_of_page(text):
    """Lists of (line, text): paragraphs and items of lists; without blocks, tables, headings and pictures."""
    current = []
    for number, line in enumerate(without_blocks(text), 1):
        apart = not line.strip() or line.lstrip().startswith(("|", "#", "![", "<"))
        if (apart or ITEM.match(line)) and current:
            yield current
            current = []
        if not apart:
            current.append((number, ITEM.sub("", line.lstrip("> "), count=1)))
    if current:
        yield current


def paragraphs_of_header(text):
    """Lists of (line, text): paragraphs of comments. Lines that are indented by three and more are pictures or formulas."""
    current, column = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"^((?:[^\"/]|/(?!/)|\"(?:[^\"\\]|\\.)*\")*)//( ?)(.*)$", line)
        words = found.group(3) if found else ""
        alone = found and not found.group(1).strip()
        goes_on = alone and found.start(2) == column and words.strip() and not words.startswith("  ") \
            and not ITEM.match(words)
        if current and not goes_on:
            yield current
            current = []
        if found and words.strip() and not words.startswith("  "):
            column = found.start(2)
            current.append((number, ITEM.sub("", words, count=1)))
    if current:
        yield current


def long_sentences(root, files, paragraphs):
    problems = []
    for path in files:
        for paragraph in paragraphs(path.read_text()):
            for number, sentence in sentences(paragraph):
                if (count := word_count(sentence)) > LIMIT_WORDS:
                    problems.append(f"{path.relative_to(root)}:{number}: {count} words: {sentence}")
    return problems


NAMED_FILE = re.compile(r"(?<![\w/.*{-])((?:lib|apps|tests|scripts|cmake|configs|docs|python)/[\w./*-]*\w)")


def check_files(root):
    """Of a page's prose and blocks, and of a source's comments. A name may end before the ending, or have a * or a
    PLACEHOLDER."""
    problems = []
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh", "*.inl", "CMakeLists.txt",
                             "*.cmake"], capture_output=True, text=True).stdout.split()
    sources = [root / name for name in listed] or sorted((root / "lib").rglob("*.h"))
    for path in [*pages(root), *sources]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = line if path.suffix == ".md" else line[line.find("//"):] if "//" in line else ""
            for name in NAMED_FILE.findall(re.sub(r"https?://\S+", "", text)):
                if not re.search(r"/[A-Z]+\b", name) and not any(root.glob(name.rstrip("/") + "*")):
                    problems.append(f"{path.relative_to(root)}:{number}: no {name}")
    return problems


def check_sentences(root):
    return long_sentences(root, pages(root), paragraphs_of_page)


def check_comments(root):
    headers = sorted(root.glob("lib/*/include/**/*.h"))
    if not headers:
        return [f"no public header under {root}/lib: wrong folder?"]
    return long_sentences(root, headers, paragraphs_of_header)


def check_self(_):
    """Each rule on a small tree that breaks it once."""
    long = "word " * LIMIT_WORDS
    tree = {
        "README.md": "[a](docs/index.md) [b](docs/none.md)\n",
        "CONTRIBUTING.md": f"{long}`a b. c`.\nShort. {long}\n\n- {long}\n- x\n\n1 to 1.0. {long}\n",
        "docs/index.md": f"# One two\n[a](../README.md) [b](deep/a.md#here) [c](#one-two)\n"
                         f"[d](../CONTRIBUTING.md) {'`a`, ' * 50}and `b`.\n\n```\n{long}{long}[x](y.md)\n```\n| {long} {long} |\n"
                         f"{long}e.g.\n<!-- {long}\n -->\n",
        "docs/deep/a.md": "# There\n`lib/x/include/smp/x/x`, `lib/*/include`, lib/LIBRARY, https://x.y/docs/z and `lib/x/y.h`\n",
        "docs/deep/b.md": "[over\ntwo lines](a.md#gone)\n",
        "lib/x/include/smp/x/x.h": f"// {long}\n// word.\n//\n//   {long}{long}\nint a;  // {long}\nint b;\n"
                                   f"         // apart\nint c;   // {long}\n         // goes on\n",
    }
    expected = {
        check_links: ["docs/deep/b.md:1: no heading for a.md#gone", "docs/index.md:2: no heading for deep/a.md#here",
                      "README.md:1: no docs/none.md"],
        check_reachable: ["docs/deep/b.md: no link leads here from docs/index.md"],
        check_files: ["docs/deep/a.md:2: no lib/x/y.h", "README.md:1: no docs/none.md"],
        check_sentences: [f"docs/index.md:9: 41 words: {long}e.g.", f"CONTRIBUTING.md:1: 41 words: {long}`a b. c`."],
        check_comments: [f"lib/x/include/smp/x/x.h:1: 41 words: {long}word.",
                         f"lib/x/include/smp/x/x.h:8: 42 words: {long}goes on"],
    }
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for rule, wanted in expected.items():
            found = rule(pathlib.Path(folder))
            if found != wanted:
                problems += [f"{rule.__name__} finds", *found, "instead of", *wanted]
    return problems


RULES = {"links": check_links, "files": check_files, "reachable": check_reachable, "sentences": check_sentences,
         "comments": check_comments, "self": check_self}


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in RULES:
        sys.exit(__doc__)
    problems = RULES[sys.argv[1]](pathlib.Path(*sys.argv[2:3]))
    print("\n".join(problems))
    if len(problems) > 1:
        print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
