#pragma once

#include <exception>
#include <string>

#include "smp/plan/base/exit_code.h"

namespace smp::record {

// The report that a rank writes to SMP_ERROR_FILE before it ends on an exception. It tells the
// launcher the root cause: a rank that lost its peer blames the peer.
struct ErrorReport {
  int rank = 0;
  std::string kind = "own";  // own, peer_lost, timeout, mismatch, aborted, out_of_memory
  int culprit = 0;           // global rank to blame
  std::string phase;         // e.g. "step 7: backward"
  std::string message;
  ExitCode exit_code = ExitCode::kFailure;
};

// Sets kind, culprit, message and exit code from the exception; `report.rank` must be set.
void describe(const std::exception& error, ErrorReport& report);

std::string to_json(const ErrorReport& report);

// Writes the file atomically; "" = nowhere. A failed write is reported on stderr and not thrown:
// the rank is ending anyway.
void write_error_report(const std::string& path, const ErrorReport& report);

}  // namespace smp::record
