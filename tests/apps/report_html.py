#!/usr/bin/env python3
"""Reads the page that `smp-plan --html` writes as a browser would, and holds it against --json.

Every byte of every memory term and every nanosecond of the step that the JSON report names must
stand in the page's document, the layouts and families in its tables; nothing may be fetched, and
no script may run.
usage: report_html.py SMP_PLAN JOB [option of smp-plan ...]
"""
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["SMP_NO_MEASURE"] = "1"  # a cluster named local has the numbers of its file

VOID = {"meta", "link", "br", "img", "input"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.bars, self.cells, self.text, self.open, self.fetched = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag in ("script", "iframe", "link", "img") or "src" in values or "href" in values:
            self.fetched.append((tag, values))
        if values.get("class") == "bar":
            self.bars.append((values["data-name"], {}))
        for unit in ("bytes", "ns"):
            if f"data-{unit}" in values:
                terms = self.bars[-1][1]
                terms[values["data-name"]] = terms.get(values["data-name"], 0) + int(values[f"data-{unit}"])
        if tag == "td":
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def terms_of(rank):
    terms = {}
    for term in rank["terms"]:
        if term["bytes"] > 0:
            terms[term["name"]] = terms.get(term["name"], 0) + term["bytes"]
    return terms


def main():
    program, arguments = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "report.html")
        run = subprocess.run([program, *arguments, "--json", "--html", str(out)], capture_output=True, text=True)
        assert run.returncode in (0, 4), run.stderr
        report, source = json.loads(run.stdout), out.read_text()
    page = Page()
    page.feed(source)
    page.close()
    assert not page.open, f"left open: {page.open}"
    assert not page.fetched, f"fetches something: {page.fetched}"
    assert "http" not in source, "names an address"
    text = " ".join("".join(page.text).split())

    checked = 0
    if report["feasible"]:
        for rank in report["plan"]["ranks"]:
            wanted = terms_of(rank)
            assert any(terms == wanted for _, terms in page.bars), f"no bar has the terms of {rank}"
            for size in wanted.values():
                assert str(size) in page.cells, f"{size} stands in no table"
                checked += 1
            assert sum(wanted.values()) == rank["peak_bytes"]
        for reason in report["plan"]["reasons"]:
            assert " ".join(reason.split()) in text, reason
            checked += 1
    else:
        assert report["problem"] in text
        for change in report["changes"]:
            assert " ".join(change.split()) in text, change
    for family in report["families"]:
        assert family["reason"] in page.cells, family
        checked += 1
    print(f"{checked} figures and reasons of the JSON stand in the page, {len(source)} bytes")


main()
