#include "supervision/stack_dump.h"

#include <signal.h>

namespace smp::supervision {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kQuietOfRanks{
    1'000};  // of silence, after which the ranks have shown their stacks
constexpr milliseconds kLongest{60'000};

}  // namespace

void StackDump::begin(const std::vector<job::RankState>& ranks, Clock::time_point now) {
  began_ = output_at_ = now;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].ended) continue;
    const int rank = static_cast<int>(i);
    switch (kind_) {
      case job::HangDump::kNone: break;
      case job::HangDump::kCalls: host_.signal(rank, SIGUSR2, job::SignalScope::kProcess); break;
      case job::HangDump::kQuit: host_.signal(rank, SIGQUIT, job::SignalScope::kProcess); break;
      case job::HangDump::kGdb:
      case job::HangDump::kPySpy:
        showing_.insert(rank);
        host_.show_stacks(
            rank, kind_ == job::HangDump::kGdb ? job::Debugger::kGdb : job::Debugger::kPySpy);
        break;
    }
  }
}

// The dump is over if the ranks have written nothing for kQuietOfRanks.
bool StackDump::is_over(Clock::time_point now) const {
  if (kind_ == job::HangDump::kNone || now - began_ > kLongest) return true;
  if (kind_ == job::HangDump::kGdb || kind_ == job::HangDump::kPySpy) return showing_.empty();
  return now - output_at_ > kQuietOfRanks;
}

}  // namespace smp::supervision
