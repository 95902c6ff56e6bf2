#include "output/input_feed.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace smp::output {
namespace {

// Bytes that ranks have not read: each has a copy, and what else ranks are told waits behind it.
constexpr uint64_t kMostOfRank = 1 << 20, kMostOfAll = 64 << 20;

}  // namespace

uint64_t InputFeed::room() const {
  uint64_t waiting = 0;
  for (const int rank : ranks_)
    waiting = std::max(waiting, given_ - std::min(given_, host_.input_taken(rank)));
  const uint64_t most = std::min(kMostOfRank, kMostOfAll / ranks_.size());
  return most - std::min(most, waiting);
}

int InputFeed::wanted() const { return over_ || ranks_.empty() || room() == 0 ? -1 : STDIN_FILENO; }

void InputFeed::read_some() {
  if (ranks_.empty()) return;
  std::array<char, 64 << 10> bytes;
  const ssize_t size = read(STDIN_FILENO, bytes.data(), std::min<uint64_t>(bytes.size(), room()));
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size > 0) given_ += static_cast<uint64_t>(size);
  over_ = size <= 0;  // also a terminal that has gone, or is another job's
  for (const int rank : ranks_) {
    if (over_)
      host_.end_input(rank);
    else
      host_.give_input(rank, {bytes.data(), static_cast<size_t>(size)});
  }
}

}  // namespace smp::output
