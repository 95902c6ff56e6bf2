#!/usr/bin/env python3
"""scripts/test among programs that only say what it asks of them: what it tells at its end.

  check_test_script.py SOURCE_DIR
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# SMP_NO_BUILD, SMP_FAILING and SMP_REPORT_OF name presets.
BUILD = '#!/bin/sh\nmkdir -p build\ntest "$1" != "$SMP_NO_BUILD" || { echo error; exit 1; }\n'
CTEST = """#!/bin/sh
test "$3" != -N || { echo "Total Tests: 9"; exit 0; }
echo "$2: start"
test "$2" != "$SMP_REPORT_OF" || echo "$SMP_REPORT"
test "$2" = "$SMP_FAILING" || { echo "100% tests passed, 0 tests failed out of 9"; exit 0; }
printf '%s\\n' '    Start   3: well' '1/9 Test   #3: well ......   Passed    0.90 sec' '    Start  44: it, once' \
  '2/9 Test  #44: it, once .....***Failed    0.96 sec' '[doctest] one' '' 'ERROR: CHECK( a == b )' \
  '    Start   5: not here' '3/9 Test #5: not here ....***Skipped   0.01 sec' 'no peer' \
  '4/9 Test  #12: a program ...Subprocess aborted***Exception:   0.01 sec' 'it died' '' \
  '89% tests passed, 1 tests failed out of 9' 'The following tests FAILED:'
printf '\\t 44 - it (Failed)Errors while running CTest\\nOutput from these tests are in: here\\n'
exit 8
"""
PASSED = "100% tests passed, 0 tests failed out of 9\n"
FAILED = "89% tests passed, 1 tests failed out of 9\n"


def run_script(folder, arguments, failing="", no_build="", report_of="", report=""):
    environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}", SMP_FAILING=failing,
                       SMP_NO_BUILD=no_build, SMP_REPORT_OF=report_of, SMP_REPORT=report)
    return subprocess.run([f"{folder}/scripts/test", *arguments], capture_output=True, text=True,
                          env=environment)


def main(source):
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        files = {"scripts/setup": "#!/bin/sh\n", "scripts/build": BUILD, "bin/ctest": CTEST}
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o700)
        shutil.copy(pathlib.Path(source, "scripts/test"), pathlib.Path(folder, "scripts/test"))

        def check(end, arguments, code, **presets):
            ended = run_script(folder, arguments, **presets)
            if ended.returncode != code or not ended.stdout.endswith(end):
                problems.append(f"scripts/test {arguments} {presets}: exit code {ended.returncode}"
                                f"\n{ended.stdout}{ended.stderr}")

        release = ("failed, by preset:\nrelease:\n  it, once\n    [doctest] one\n    ERROR: CHECK( a == b )\n"
                   "  a program\n    it died\n  44 - it (Failed)\n")
        check("tsan: start\n" + PASSED + "\n" + 3 * PASSED, [], 0)
        check("quick: start\n" + PASSED + "\n" + PASSED, ["--quick"], 0)
        race = "WARNING: ThreadSanitizer: data race (pid=1)"
        check("\nfailed, by preset:\nasan: a sanitizer reported\n" + race + "\n\n" + 3 * PASSED, [], 1,
              report_of="asan", report=race)
        check("Total Tests: 9\n\nTotal Tests: 9\n", ["-N"], 0)
        check(release + "\n" + 2 * PASSED + FAILED, [], 1, failing="release")
        check("error\n\n" + release + "asan: it does not build\n\n" + FAILED +
              "asan: no test was run\n", [], 1, failing="release", no_build="asan")
        check("failed, by preset:\nrelease: it does not build\n\nrelease: no test was run\n", [], 1,
              no_build="release")
    print("\n".join(problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
