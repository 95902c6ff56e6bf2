#include "smp/launcher/output/line_fold.h"

#include <algorithm>
#include <utility>

namespace smp::output {
namespace {

std::string key_of(job::Stream stream, std::string_view line) {
  std::string key(line);
  key.push_back(stream == job::Stream::kOut ? 'o' : 'e');
  return key;
}

}  // namespace

void LineFold::feed(int rank, job::Stream stream, std::string_view lines,
                    std::chrono::system_clock::time_point time, Clock::time_point now) {
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n') + 1);
    feed_line(rank, stream, line, time, now);
    lines.remove_prefix(line.size());
  }
}

void LineFold::feed_line(int rank, job::Stream stream, std::string_view line,
                         std::chrono::system_clock::time_point time, Clock::time_point now) {
  uint64_t& next = next_[rank];
  std::deque<uint64_t>& numbers = numbers_[key_of(stream, line)];
  // One that stands before the rank's own last line would turn its lines around.
  const auto same = std::lower_bound(numbers.begin(), numbers.end(), next);
  if (same != numbers.end()) {
    std::vector<int>& ranks = waiting_[*same - taken_].folded.ranks;
    ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank), rank);
    next = *same + 1;
    return;
  }
  const uint64_t number = taken_ + waiting_.size();
  numbers.push_back(number);
  waiting_.push_back({{{rank}, stream, std::string(line), time}, now + kWindow});
  bytes_ += line.size();
  next = number + 1;
}

bool LineFold::is_due(const Waiting& first, Clock::time_point now) const {
  return first.until <= now || first.folded.ranks.size() == ranks_ || bytes_ > kMostWaitingBytes;
}

std::vector<LineFold::Folded> LineFold::take(Clock::time_point now, bool all) {
  std::vector<Folded> taken;
  while (!waiting_.empty() && (all || is_due(waiting_.front(), now))) {
    Folded& folded = waiting_.front().folded;
    bytes_ -= folded.line.size();
    const auto numbers = numbers_.find(key_of(folded.stream, folded.line));
    numbers->second.pop_front();
    if (numbers->second.empty()) numbers_.erase(numbers);
    taken.push_back(std::move(folded));
    waiting_.pop_front();
    ++taken_;
  }
  return taken;
}

std::optional<LineFold::Clock::time_point> LineFold::due() const {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.front().until;
}

}  // namespace smp::output
