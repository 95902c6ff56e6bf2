#include "plan/jobfile/bad_jobs.h"

#include <doctest/doctest.h>

#include "files_and_errors.h"
#include "scratch_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"

namespace smp {
namespace {

using testing::BadJob;
using testing::read_bad_jobs;

// Each line has its end.
std::string errors_of(const BadJob& job) {
  try {
    jobfile::read_job({{job.name, job.text}});
  } catch (const ConfigError& error) {
    return std::string(error.what()) + "\n";
  }
  return "no error\n";
}

std::string read_error(const std::string& text) {
  return error_of([&] { testing::read_cases("x.cases", text); });
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

const std::string kCase = "=== a.yaml\nmodel: 4\n=== errors\na.yaml:1:8: no\n\n";

}  // namespace

TEST_CASE("each bad job says its exact errors") {
  const std::vector<BadJob> jobs = read_bad_jobs(SMP_SOURCE_DIR "/tests/golden/bad-jobs");
  CHECK(jobs.size() >= 286);  // a reader that loses cases does not pass
  for (const BadJob& job : jobs) {
    CAPTURE(job.name);
    const std::string actual = errors_of(job);
    if (actual == job.errors) continue;
    ADD_FAIL_CHECK_AT(job.file.c_str(), job.line, difference(job, actual));
  }
}

TEST_CASE("a case that fails shows the line that differs and all errors to paste") {
  const BadJob job = testing::read_cases("x.cases", "# Kind.\n" + kCase + "=== end\n").front();
  CHECK(difference(job, "a.yaml:1:8: yes\n  model: 4\n") ==
        "a.yaml says other errors than x.cases:5 expects\n"
        "expected: a.yaml:1:8: no\n"
        "actual:   a.yaml:1:8: yes\n"
        "all of its errors:\n"
        "a.yaml:1:8: yes\n"
        "  model: 4\n");
  CHECK(difference(job, job.errors + "  model: 4\n")
            .starts_with("a.yaml says other errors than x.cases:6 expects\n"
                         "expected: (no line)\n"
                         "actual:     model: 4\n"));
  CHECK(difference(job, "").find("actual:   (no line)\n") != std::string::npos);
}

TEST_CASE("a cases file holds the jobs and their errors as they are") {
  const std::string text =
      "# Kind.\n\n" + kCase + "=== b-2.yaml\n\nmodel:\n\n=== errors\nb\n  ^\n\n=== end\n";
  const std::vector<BadJob> jobs = testing::read_cases("x.cases", text);
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0].name == "a.yaml");
  CHECK(jobs[0].file == "x.cases");
  CHECK(jobs[0].line == 3);
  CHECK(jobs[0].text == "model: 4\n");
  CHECK(jobs[0].errors == "a.yaml:1:8: no\n");
  CHECK(jobs[1].line == 8);
  CHECK(jobs[1].text == "\nmodel:\n\n");
  CHECK(jobs[1].errors == "b\n  ^\n");
  CHECK(jobs[1].errors_line == 13);
}

TEST_CASE("a cases file that is cut off or malformed is refused with the place") {
  const std::string job = "=== a.yaml\nmodel: 4\n", end = "=== end\n";
  // Wherever a file is cut off: no part of it is a file.
  const std::string whole = "# Kind.\n" + kCase + kCase + end;
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(read_error(whole.substr(0, size)).starts_with("x.cases:"));
  }
  CHECK(read_error(whole) == "no error");
  CHECK(read_error("") == "x.cases:0: the file is cut off: its last line is not '=== end'");
  CHECK(read_error(kCase) == "x.cases:5: the file is cut off: its last line is not '=== end'");
  CHECK(read_error(kCase + "=== end") ==
        "x.cases:6: the file is cut off: its last line has no end");

  const auto refused = [](const std::string& text) {
    return read_error(text + kCase + "=== end\n");
  };
  CHECK(refused("model: 4\n") == "x.cases:1: neither a comment nor '=== NAME.yaml'");
  CHECK(refused("=== errors\n") == "x.cases:1: '=== errors' without a job before it");
  CHECK(refused(kCase + "=== errors\n") == "x.cases:6: '=== errors' without a job before it");
  CHECK(refused("=== b.yaml\n=== errors\n") == "x.cases:2: the job is empty: keep it in files/");
  CHECK(refused(job) == "x.cases:3: a.yaml has no '=== errors'");
  CHECK(refused(job + "=== errors\n") == "x.cases:4: an empty line must end the errors of a.yaml");
  CHECK(refused(job + "=== errors\nno\n") ==
        "x.cases:5: an empty line must end the errors of a.yaml");
  CHECK(refused(job + "=== errors\n\n") == "x.cases:5: a.yaml expects no error");
  CHECK(refused("=== a\n") ==
        "x.cases:1: '=== a' is none of '=== NAME.yaml', '=== errors' and '=== end'");
  CHECK(refused("====\n") ==
        "x.cases:1: '====' is none of '=== NAME.yaml', '=== errors' and '=== end'");
  CHECK(refused(kCase + end) == "x.cases:7: a line after '=== end'");
  CHECK(read_error("# Kind.\n" + end) == "x.cases:2: there is no case");
  for (const std::string line : {"a \n", "a\r\n", "\ta\n", "\x7f\n"}) {
    CAPTURE(line);
    CHECK(refused("=== b.yaml\n" + line) ==
          "x.cases:2: a control character, or a blank at the end of the line: keep this job in "
          "files/");
  }
}

TEST_CASE("each file of the folder is read, or refused") {
  const ScratchFolder folder;
  const std::string cases = folder / "kind.cases", files = folder / "files";
  const auto error = [&] { return error_of([&] { read_bad_jobs(folder.path()); }); };
  write(cases, kCase + "=== end\n");
  std::filesystem::create_directory(files);
  write(files + "/b.yaml", "a\r\n");
  CHECK(error() == files + "/b.yaml: not one of a pair NAME.yaml, NAME.expected");
  write(files + "/b.expected", "no\n");
  const std::vector<BadJob> jobs = read_bad_jobs(folder.path());
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0].name == "b.yaml");
  CHECK(jobs[0].text == "a\r\n");
  CHECK(jobs[0].errors == "no\n");
  CHECK(jobs[1].name == "a.yaml");

  const std::string stray = files + "/b.txt";
  write(stray, "no\n");
  CHECK(error() == stray + ": not one of a pair NAME.yaml, NAME.expected");
  std::filesystem::remove(stray);
  write(folder / "other.cases", kCase + "=== end\n");
  CHECK(error() == folder / "other.cases:1: a.yaml is also in " + cases + ":1");
  write(folder / "c.yaml", "model: 4\n");
  CHECK(error() == folder / "c.yaml: a case belongs in KIND.cases or in files/");
}

}  // namespace smp
