#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace smp::training {

// A failure on purpose, to test the supervision of a run: one rank fails in a chosen way at the
// start of a chosen step.
struct InjectedFault {
  enum class Kind {
    kExit3,      // the process ends with code 3
    kException,  // the step throws a C++ exception
    kSegv,       // the process raises SIGSEGV
    kKill,       // the process raises SIGKILL
    kStop,       // the rank hangs
  };
  int64_t rank = 0;
  int64_t step = 1;  // from 1
  Kind kind = Kind::kException;
};

// "rank=1,step=3,kind=kill"; kinds: exit3, exception, segv, kill, stop. Throws ConfigError.
InjectedFault parse_fault(std::string_view text);

// Throws ConfigError for a fault that cannot occur in a job of `ranks` ranks and `steps` steps.
void check_fault(const std::optional<InjectedFault>& fault, int64_t ranks, int64_t steps);

// Fails if `fault` is set for this rank and step (from 1).
void inject_fault_if_due(const std::optional<InjectedFault>& fault, int64_t rank, int64_t step);

}  // namespace smp::training
