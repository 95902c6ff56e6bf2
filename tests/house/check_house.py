#!/usr/bin/env python3
"""Checks of the house's own rules (CONTRIBUTING.md). One subcommand per rule; each prints what breaks it.

  check_house.py includes SOURCE_DIR         who may include whom
  check_house.py folders SOURCE_DIR          which folder of a library may include which; namespaces
  check_house.py circles SOURCE_DIR          no files of a library include each other in a circle
  check_house.py headers SOURCE_DIR CXX [FLAG ...]   every public header compiles alone
  check_house.py links PROGRAM ...           no torch, CUDA, NCCL or libfabric behind a program
  check_house.py format SOURCE_DIR CLANG_FORMAT   as clang-format 14 leaves it
  check_house.py files SOURCE_DIR            no source file over 600 lines, no marks, no machine paths
  check_house.py types SOURCE_DIR            each type of the libraries has a name of its own
"""
import pathlib
import re
import subprocess
import sys

# library -> the libraries of ours that it may include, besides itself
MAY_INCLUDE = {
    "plan": set(),
    "rendezvous": {"plan"},
    "comm": {"plan", "rendezvous"},
    "planner": {"plan"},
    "interchange": {"plan"},
    "tensorfiles": {"plan", "interchange"},
    "launcher": {"plan", "rendezvous"},
    "runtime": {"plan", "rendezvous", "comm", "interchange", "tensorfiles"},
}
# The folders of each library. A folder includes those that stand before it, and itself: there is no circle. A folder
# is a namespace, smp::FOLDER; base and spec are the words of all and stand in smp itself, and what lies in no folder
# in smp::LIBRARY.
FOLDERS = {
    "plan": "base mesh spec text env files framework system model program schedule layout data rules jobfile planfile runinfo",
    "planner": "links choice cost memory time prediction search traps runs calibration page report runpage published",
    "interchange": "shell pyscript huggingface importers exporters",
    "rendezvous": "sockets wire handshake",
    "comm": ". waiting segment progress reduce net bootstrap groups jobs device",
    "tensorfiles": "safetensors checkpoint pretrained",
    "launcher": "hosts environment process health job local output supervision run reach agent probe request schedulers launch",
    "runtime": "ledger kernels gpu layers parameters optim record parallel engine feed cuda tensorboard training",
}
IN_SMP = ("base", "spec")
# Circles of files that stay, and why. A file is its header and its source, NAME.h and NAME.cpp.
CIRCLES = {
    # Two ends of one protocol: a channel sends by its endpoint, and the endpoint tells the channel what has come.
    ("comm/net/channel", "comm/net/network_endpoint"),
}
# Folders of which the other folders of their library, and the apps, include one header alone.
ONE_HEADER = {"smp/launcher/schedulers/": "smp/launcher/schedulers/scheduler.h"}
# where nlohmann's JSON comes from: the one public header that names it, for sources to include
JSON = "lib/plan/include/smp/plan/text/json.h"
# foreign headers that only some places may include
CONFINED = [
    (re.compile(r"(torch|ATen|c10)/"), ("lib/runtime/", "tests/runtime/", "tests/parity/", "tests/gpu/", "tests/bench/", "python/")),
    (re.compile(r"CLI/"), ("apps/",)),
    (re.compile(r"rdma/"), ("lib/comm/", "tests/bench/")),
    (re.compile(r"nlohmann/json\.hpp"), (JSON,)),
]
# public headers keep these out altogether
FOREIGN_IN_PUBLIC = re.compile(r"((torch|ATen|c10|CLI|nlohmann|yaml-cpp|rdma)/|smp/plan/json\.h$)")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')
LIMIT_LINES = 600


def sources(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.h", "*.cpp", "*.cu"],
                            capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return [pathlib.Path(root, f) for f in listed.stdout.splitlines()]
    return [p for d in ("lib", "apps", "tests") for p in sorted(pathlib.Path(root, d).rglob("*"))
            if p.suffix in (".h", ".cpp", ".cu")]


def includes_of(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def check_includes(root):
    problems = []
    for path in sources(root):
        name = str(path.relative_to(root))
        parts = name.split("/")
        library = parts[1] if parts[0] == "lib" else None
        public = library and parts[2] == "include"
        for number, header in includes_of(path):
            where = f"{name}:{number}"
            ours = re.match(r"smp/([a-z]+)/", header)
            if library and ours and ours.group(1) != library and \
                    ours.group(1) not in MAY_INCLUDE[library]:
                problems.append(f"{where}: lib/{library} may not include {header}")
            if public and name != JSON and FOREIGN_IN_PUBLIC.match(header):
                problems.append(f"{where}: a public header may not include {header}")
            for pattern, places in CONFINED:
                if pattern.match(header) and not name.startswith(places):
                    problems.append(f"{where}: {header} belongs in {', '.join(places)} only")
            if not name.startswith("tests/") and header.startswith("tests/"):
                problems.append(f"{where}: nothing includes the tests")
    return problems


def folder_of(name):
    """(library, folder) of a source or header of lib/; None elsewhere. Folders within folders are parts of them."""
    match = re.match(r"lib/(\w+)/(?:src|include/smp/\w+)/(?:(\w+)/)?", name)
    return (match.group(1), match.group(2) or ".") if match else None


def behind_doors(path, name, place):
    """Headers of a folder that `place` includes, where that folder has one header for all others."""
    return [f"{name}:{number}: {place} may include {door}, not {header}"
            for number, header in includes_of(path) for inside, door in ONE_HEADER.items()
            if header.startswith(inside) and header != door and place != inside.split("/")[-2]]


def check_folders(root):
    problems = []
    order = {library: folders.split() for library, folders in FOLDERS.items()}
    folders = [folder for of_library in order.values() for folder in of_library if folder != "."]
    problems += [f"two libraries have a folder {folder}, which are one namespace"
                 for folder in sorted({f for f in folders if folders.count(f) > 1})]
    for path in sources(root):
        name = str(path.relative_to(root))
        place = folder_of(name)
        if place is None:
            if name.startswith("apps/"):
                problems += behind_doors(path, name, "apps")
            continue
        library, folder = place
        problems += behind_doors(path, name, folder)
        if folder not in order.get(library, []):
            problems.append(f"{name}: FOLDERS of check_house.py does not have lib/{library}/{folder}")
            continue
        space = "smp" if folder in IN_SMP else f"smp::{library if folder == '.' else folder}"
        text = path.read_text()
        if not re.search(rf"^namespace {space} \{{", text, flags=re.MULTILINE) and re.search(r"^namespace smp\b", text, flags=re.MULTILINE):
            problems.append(f"{name}: nothing in namespace {space}, which is its folder's")
        for number, header in includes_of(path):
            ours = re.match(r"(?:smp/(\w+)/)?(?:(\w+)/)?.*\.h$", header)
            if not ours:
                continue
            of_library = ours.group(1) or library
            included = ours.group(2) or "."
            if of_library == library and included in order[library] and \
                    order[library].index(included) > order[library].index(folder):
                problems.append(f"{name}:{number}: {folder} stands before {included} and may not include {header}")
    return problems


def file_of(name):
    """plan/mesh/mesh of lib/plan/src/mesh/mesh.cpp and of lib/plan/include/smp/plan/mesh/mesh.h; None elsewhere."""
    match = re.match(r"lib/(\w+)/(?:src|include/smp/\w+)/(.*)\.\w+$", name)
    return f"{match.group(1)}/{match.group(2)}" if match else None


def circles_of(root):
    """Groups of files of lib/ each of which includes every other one, by way of others or at once."""
    of_path = {path: file_of(str(path.relative_to(root))) for path in sources(root)}
    known = set(of_path.values()) - {None}
    includes = {file: set() for file in known}
    for path, file in of_path.items():
        if file is None:
            continue
        for _, header in includes_of(path):
            name = header.removesuffix(".h")
            candidates = [name.removeprefix("smp/")] if name.startswith("smp/") else \
                [f"{file.split('/')[0]}/{name}", f"{file.rpartition('/')[0]}/{name}"]
            includes[file].update(c for c in candidates if c in known and c != file)

    def reached_from(file):
        found, open_files = set(), [file]
        while open_files:
            for other in includes[open_files.pop()] - found:
                found.add(other)
                open_files.append(other)
        return found

    reached = {file: reached_from(file) for file in known}
    circles = {tuple(sorted(other for other in reached[file] if file in reached[other]))
               for file in known if file in reached[file]}
    return sorted(circles)


def check_circles(root):
    circles = circles_of(root)
    problems = [f"{', '.join(circle)} include each other: move what they share to a file of its own"
                for circle in circles if circle not in CIRCLES]
    return problems + [f"{', '.join(circle)} are no circle any more: CIRCLES of check_house.py need not have them"
                       for circle in sorted(CIRCLES) if circle not in circles]


def first_includes(root):
    """Headers that a source of ours includes before all others: the build compiles them alone."""
    return {next((header for _, header in includes_of(path)), None)
            for path in pathlib.Path(root, "lib").glob("*/src/**/*.cpp")}


def check_headers(root, compiler, flags):
    problems, built = [], first_includes(root)
    includes = [f"-I{d}" for d in sorted(pathlib.Path(root, "lib").glob("*/include"))]
    headers = sorted(pathlib.Path(root, "lib").glob("*/include/smp/**/*.h"))
    if not headers:
        return [f"no public header under {root}/lib: wrong folder?"]
    for header in headers:
        text = header.read_text()
        if "#pragma once" not in text:
            problems.append(f"{header.relative_to(root)}: no #pragma once")
        if str(header).split("/include/")[-1] in built:
            continue
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", *includes,
                               *flags, str(header)], capture_output=True, text=True)
        if done.returncode != 0:
            problems.append(f"{header.relative_to(root)} does not compile alone:\n{done.stderr}")
    return problems


def check_links(programs):
    problems = []
    heavy = re.compile(r"torch|c10|cuda|nccl|cudnn|fabric", re.I)
    for program in programs:
        done = subprocess.run(["ldd", program], capture_output=True, text=True)
        if done.returncode != 0:
            problems.append(f"ldd {program}: {done.stderr.strip()}")
        problems += [f"{program} links {line.split()[0]}" for line in done.stdout.splitlines()
                     if heavy.search(line.split()[0])]
    return problems


def check_files(root):
    problems = []
    for path in sources(root):
        name = str(path.relative_to(root))
        text = path.read_text()
        lines = text.count("\n")
        if lines > LIMIT_LINES and not name.startswith("tests/"):
            problems.append(f"{name}: {lines} lines; {LIMIT_LINES} is the end")
        for mark in ("TO" + "DO", "FIX" + "ME", "XX" + "X"):
            if re.search(rf"\b{mark}\b", text):
                problems.append(f"{name}: unfinished mark {mark}")
        if re.search(r"[\"' (](/home/|/root/|/Users/)", text):
            problems.append(f"{name}: a path of one machine")
    return problems


TYPE = re.compile(r"(?:class|struct|enum class|union) ([A-Z]\w*)(?: final)?(?: :[^{;]*)?(?: \{|$)")
NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*) ?\{")


def types_of(text):
    """Types that stand in no unnamed namespace, with the namespaces that they stand in."""
    opened = []
    for line in text.splitlines():
        space, end = NAMESPACE.match(line), re.match(r"\}  // namespace", line)
        if space and not line.rstrip().endswith("}"):
            opened.append(space.group(1))
        elif end and opened:
            opened.pop()
        found = TYPE.match(line)
        if found and "" not in opened:
            yield "::".join([*opened, found.group(1)])


def check_types(root):
    """Two types of one name may meet in one program, where the linker keeps one's functions for both."""
    places = {}
    for path in sources(root):
        name = str(path.relative_to(root))
        if name.startswith("lib/"):
            for found in types_of(path.read_text()):
                places.setdefault(found, []).append(name)
    problems = [f"{found} is defined in {' and in '.join(names)}"
                for found, names in sorted(places.items()) if len(names) > 1]
    # A name of an inner namespace hides the outer one's.
    for found, names in sorted(places.items()):
        space, _, name = found.rpartition("::")
        while "::" in space:
            space = space.rpartition("::")[0]
            if f"{space}::{name}" in places:
                problems.append(f"{found} of {names[0]} hides {space}::{name} of {places[f'{space}::{name}'][0]}")
    return problems


def check_format(root, formatter):
    version = subprocess.run([formatter, "--version"], capture_output=True, text=True).stdout \
        if formatter and "NOTFOUND" not in formatter else ""
    if "version 14." not in version:
        print("skipped: no clang-format 14 on this machine")
        sys.exit(77)
    done = subprocess.run([formatter, "--dry-run", *map(str, sources(root))],
                          capture_output=True, text=True)
    return [line for line in done.stderr.splitlines() if "warning" in line]


def main():
    rule, arguments = sys.argv[1], sys.argv[2:]
    if rule == "includes":
        problems = check_includes(arguments[0])
    elif rule == "folders":
        problems = check_folders(arguments[0])
    elif rule == "circles":
        problems = check_circles(arguments[0])
    elif rule == "headers":
        problems = check_headers(arguments[0], arguments[1], arguments[2:])
    elif rule == "links":
        problems = check_links(arguments)
    elif rule == "format":
        problems = check_format(arguments[0], arguments[1])
    elif rule == "files":
        problems = check_files(arguments[0])
    elif rule == "types":
        problems = check_types(arguments[0])
    else:
        sys.exit(__doc__)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
