#include "plan/jobfile/bad_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "files_and_errors.h"

namespace smp::testing {
namespace {

namespace fs = std::filesystem;

// Reads a cases file line by line.
class CasesReader {
 public:
  explicit CasesReader(const std::string& path) : path_(path) {}

  std::vector<BadJob> read(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const size_t end = text.find('\n');
      if (end == text.npos) broken("the file is cut off: its last line has no end");
      take(std::string(text.substr(0, end)));
      text.remove_prefix(end + 1);
    }
    if (within_ != Within::kEnd) broken("the file is cut off: its last line is not '=== end'");
    if (jobs_.empty()) broken("there is no case");
    return std::move(jobs_);
  }

 private:
  enum class Within { kHead, kJob, kErrors, kEnd };

  [[noreturn]] void broken(const std::string& why) const {
    throw std::runtime_error(fmt::format("{}:{}: {}", path_, line_, why));
  }

  void take(const std::string& line) {
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    if (std::any_of(line.begin(), line.end(), is_control) || line.ends_with(' ')) {
      broken("a control character, or a blank at the end of the line: keep this job in files/");
    }
    if (within_ == Within::kEnd) broken("a line after '=== end'");
    if (line.starts_with("===")) {
      take_separator(line);
    } else if (within_ == Within::kJob) {
      jobs_.back().text += line + "\n";
    } else if (within_ == Within::kErrors) {
      jobs_.back().errors += line + "\n";
    } else if (!line.empty() && !line.starts_with('#')) {
      broken("neither a comment nor '=== NAME.yaml'");
    }
  }

  void take_separator(const std::string& line) {
    if (line == "=== errors") {
      if (within_ != Within::kJob) broken("'=== errors' without a job before it");
      if (jobs_.back().text.empty()) broken("the job is empty: keep it in files/");
      jobs_.back().errors_line = line_ + 1;
      within_ = Within::kErrors;
      return;
    }
    finish_case();
    if (line == "=== end") {
      within_ = Within::kEnd;
    } else if (line.starts_with("=== ") && line.ends_with(".yaml") &&
               line.find(' ', 4) == line.npos) {
      jobs_.push_back({path_, line_, line.substr(4), "", "", 0, path_});
      within_ = Within::kJob;
    } else {
      broken(fmt::format("'{}' is none of '=== NAME.yaml', '=== errors' and '=== end'", line));
    }
  }

  void finish_case() {
    if (within_ == Within::kHead) return;
    BadJob& job = jobs_.back();
    if (within_ == Within::kJob) broken(job.name + " has no '=== errors'");
    if (job.errors == "\n") broken(job.name + " expects no error");
    if (!job.errors.ends_with("\n\n")) broken("an empty line must end the errors of " + job.name);
    job.errors.pop_back();
  }

  std::string path_;
  int line_ = 0;
  Within within_ = Within::kHead;
  std::vector<BadJob> jobs_;
};

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries(fs::directory_iterator(folder), fs::directory_iterator{});
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The pairs NAME.yaml, NAME.expected of a folder.
std::vector<BadJob> read_pairs(const fs::path& folder) {
  std::vector<BadJob> jobs;
  for (const fs::path& path : entries_of(folder)) {
    const bool is_job = path.extension() == ".yaml";
    fs::path other = path;
    other.replace_extension(is_job ? ".expected" : ".yaml");
    if ((!is_job && path.extension() != ".expected") || !fs::is_regular_file(other)) {
      throw std::runtime_error(path.string() + ": not one of a pair NAME.yaml, NAME.expected");
    }
    if (is_job) jobs.push_back({path, 1, path.filename(), text_of(path), text_of(other), 1, other});
  }
  return jobs;
}

}  // namespace

std::vector<BadJob> read_cases(const std::string& path, const std::string& text) {
  return CasesReader(path).read(text);
}

std::vector<BadJob> read_bad_jobs(const std::string& folder) {
  std::vector<BadJob> all;
  std::map<std::string, std::string> places;
  for (const fs::path& path : entries_of(folder)) {
    std::vector<BadJob> jobs;
    if (path.filename() == "files") {
      jobs = read_pairs(path);
    } else if (path.extension() == ".cases") {
      jobs = read_cases(path, text_of(path));
    } else {
      throw std::runtime_error(path.string() + ": a case belongs in KIND.cases or in files/");
    }
    for (BadJob& job : jobs) {
      const std::string place = fmt::format("{}:{}", job.file, job.line);
      const auto [known, is_new] = places.emplace(job.name, place);
      if (!is_new) {
        throw std::runtime_error(
            fmt::format("{}: {} is also in {}", place, job.name, known->second));
      }
      all.push_back(std::move(job));
    }
  }
  return all;
}

std::string difference(const BadJob& job, const std::string& actual) {
  const auto next_line = [](std::istringstream& text) {
    std::string line;
    return std::getline(text, line) ? line : "(no line)";
  };
  std::istringstream expected_text(job.errors), actual_text(actual);
  std::string expected, found;
  int line = job.errors_line - 1;
  do {
    ++line;
    expected = next_line(expected_text);
    found = next_line(actual_text);
  } while (expected == found && expected_text);
  return fmt::format(
      "{} says other errors than {}:{} expects\nexpected: {}\nactual:   {}\nall of its errors:\n{}",
      job.name, job.errors_file, line, expected, found, actual);
}

}  // namespace smp::testing
