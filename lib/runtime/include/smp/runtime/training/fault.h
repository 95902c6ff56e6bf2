#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace smp::training {

// A failure on purpose, for the tests of what watches a run: one rank fails in a chosen way at the
// start of a chosen step.
struct Fault {
  enum class Kind {
    kExit3,      // the process ends with code 3
    kException,  // a C++ exception leaves the step
    kSegv,       // a SIGSEGV of its own
    kKill,       // a SIGKILL
    kStop,       // the rank stops calling and never returns
  };
  int64_t rank = 0;
  int64_t step = 1;  // from 1
  Kind kind = Kind::kException;
};

// "rank=1,step=3,kind=kill"; kinds: exit3, exception, segv, kill, stop. Throws ConfigError.
Fault parse_fault(std::string_view text);

// Throws ConfigError for a fault that would never come about in a job of so many ranks and steps.
void check_fault(const std::optional<Fault>& fault, int64_t ranks, int64_t steps);

// Fails when `fault` is set and meant for this rank and step (from 1).
void maybe_fail(const std::optional<Fault>& fault, int64_t rank, int64_t step);

}  // namespace smp::training
