#include "stack_dump.h"

#include <signal.h>

namespace smp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kQuietOfRanks{1'000};  // after which they have shown all
constexpr milliseconds kLongest{60'000};

}  // namespace

void StackDump::begin(const std::vector<RankState>& ranks, Clock::time_point now) {
  began_ = output_at_ = now;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].ended) continue;
    const int rank = static_cast<int>(i);
    switch (kind_) {
      case HangDump::kNone: break;
      case HangDump::kCalls: host_.signal(rank, SIGUSR2, SignalScope::kProcess); break;
      case HangDump::kQuit: host_.signal(rank, SIGQUIT, SignalScope::kProcess); break;
      case HangDump::kGdb:
      case HangDump::kPySpy:
        showing_.insert(rank);
        host_.show_stacks(rank, kind_ == HangDump::kGdb ? Debugger::kGdb : Debugger::kPySpy);
        break;
    }
  }
}

// That ranks have said all shows in that they say nothing more for a while.
bool StackDump::is_over(Clock::time_point now) const {
  if (kind_ == HangDump::kNone || now - began_ > kLongest) return true;
  if (kind_ == HangDump::kGdb || kind_ == HangDump::kPySpy) return showing_.empty();
  return now - output_at_ > kQuietOfRanks;
}

}  // namespace smp
