#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "smp/launcher/job/host.h"

namespace smp::output {

// Whose line it is. Several ranks where they said the same.
struct RankWords {
  std::vector<int> ranks;        // ascending
  std::vector<int> local_ranks;  // ascending
  std::string host;
  job::Stream stream = job::Stream::kOut;
  std::chrono::system_clock::time_point time{};
};

// A text with places for a rank's words, as in "{host} {rank:04} ": what stands before its lines on
// the console, or the name of its log. "{{" is a brace. Immutable; any thread.
class RankTemplate {
 public:
  enum class Field { kLiteral, kRank, kLocalRank, kHost, kStream, kTime };

  // Throws ConfigError, in the name of `option`.
  RankTemplate(const std::string& option, std::string_view text);

  bool has(Field field) const;
  // {time} is UTC, to the millisecond.
  std::string fill(const RankWords& words) const;

 private:
  struct Part {
    Field field = Field::kLiteral;
    std::string text;  // of a literal
    int width = 0;     // of numbers, filled with zeros
  };
  std::vector<Part> parts_;
};

}  // namespace smp::output
