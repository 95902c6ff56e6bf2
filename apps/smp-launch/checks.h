#pragma once

#include <string>
#include <vector>

#include "launch.h"

namespace smp {

// One thing that has to hold before a rank is started. A launch stops at the first that does not; a
// dry run prints them all.
struct Check {
  std::string name;
  bool ok = true;
  std::string text;              // what was found, or what is wrong and what to do about it
  bool of_this_machine = false;  // looks at files that the job needs where it runs
  bool skipped = false;          // by the user's wish
};

// The checks of a job, in order. They change nothing on disk and start nothing.
std::vector<Check> checks_of(const PreparedJob& job);

// The one of them that --build-only needs: smp-worker is there.
Check check_worker(const PreparedJob& job);

// The file that a program's name stands for along PATH; empty where there is none.
std::string found_in_path(const std::string& program);

}  // namespace smp
