#pragma once

#include <string>
#include <vector>

// Jobs that are refused, each with the errors of reading it: tests/golden/bad-jobs. A
// KIND.cases file holds many of them; its head describes the format. files/ holds those whose bytes
// an editor would change, as NAME.yaml beside NAME.expected.
namespace smp::testing {

struct BadJob {
  std::string file;         // the file that holds the case
  int line = 0;             // of the case's title, from 1
  std::string name;         // of the job file, as its errors call it: "unknown-key.yaml"
  std::string text;         // of the job file
  std::string errors;       // expected; each line has its end
  int errors_line = 0;      // of the first line of the errors, from 1
  std::string errors_file;  // the file that holds the errors
};

// The cases of a KIND.cases file in their order. path names the file in errors.
// Throws std::runtime_error with a place for a file that is malformed or cut off.
std::vector<BadJob> read_cases(const std::string& path, const std::string& text);

// All cases below a folder as tests/golden/bad-jobs is one. Throws std::runtime_error for a broken
// file, a file that is neither a KIND.cases nor one of a pair in files/, and a name that two cases
// have.
std::vector<BadJob> read_bad_jobs(const std::string& folder);

// What a person needs to see where a job says other errors than the case expects: the first line
// that differs, and all errors as they would stand in the case. actual: each line has its end.
std::string difference(const BadJob& job, const std::string& actual);

}  // namespace smp::testing
