#pragma once

#include <exception>
#include <string>

#include "smp/plan/base/exit_code.h"

namespace smp::record {

// What a rank leaves in SMP_ERROR_FILE before it ends on an exception, so that the launcher can
// name the true cause: a rank that lost its peer blames the peer.
struct LastWords {
  int rank = 0;
  std::string kind = "own";  // own, peer_lost, timeout, mismatch, aborted, out_of_memory
  int culprit = 0;           // global rank to blame
  std::string phase;         // e.g. "step 7: backward"
  std::string message;
  ExitCode exit_code = ExitCode::kFailure;
};

// Fills kind, culprit, message and exit code from the exception; `words.rank` is set already.
void describe(const std::exception& error, LastWords& words);

std::string to_json(const LastWords& words);

// Writes the file atomically; "" = nowhere. A file that cannot be written is reported on stderr:
// the rank is ending anyway.
void write_last_words(const std::string& path, const LastWords& words);

}  // namespace smp::record
