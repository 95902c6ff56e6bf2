#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace smp::process {

enum class RankErrorKind { kOwn, kPeerLost, kTimeout, kMismatch, kAborted, kOutOfMemory };

// The last words of a rank, which it writes to SMP_ERROR_FILE before it ends on an exception.
struct RankError {
  int rank = 0;
  RankErrorKind kind = RankErrorKind::kOwn;
  int culprit = 0;  // the rank to blame; its own for kOwn and kOutOfMemory
  std::string phase;
  std::string message;

  bool blames_another() const { return culprit != rank; }
};

// The bytes of an error file, as far as they may count; empty if there is none.
std::string read_error_file(const std::string& path);

// Empty if the rank left none, or was killed while it wrote: then its end has to speak for itself.
// Reads what torch's @record writes (TORCHELASTIC_ERROR_FILE), too.
std::optional<RankError> parse_last_words(std::string_view text, int rank, int world_size);

}  // namespace smp::process
