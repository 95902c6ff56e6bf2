#include "smp/comm/call_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "words_of.h"

#if defined(__x86_64__)
#  include <x86intrin.h>
#endif

namespace smp::comm {
namespace {

// A clock that takes a few nanoseconds to read. calls() finds out how long a tick is.
uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// An entry's sequence is cleared before anything else is written and set last. So a reader that has
// read something of a later call sees at the end that the sequence has changed.
constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcquire = std::memory_order_acquire;

std::string_view name_of(LoggedCall::State state) {
  switch (state) {
    case LoggedCall::State::kEnqueued: return "enqueued";
    case LoggedCall::State::kStarted: return "started";
    case LoggedCall::State::kDone: return "done";
    default: return "failed";
  }
}

// "0 2 4 6" is "0-6 by 2".
std::string group_text(const LoggedCall& call) {
  const int last = call.group_first + (call.group_size - 1) * call.group_stride;
  if (call.group_size == 1) return fmt::format("{}", call.group_first);
  if (call.group_stride == 1) return fmt::format("{}-{}", call.group_first, last);
  if (call.group_stride == 0) return fmt::format("{} from {}", call.group_size, call.group_first);
  return fmt::format("{}-{} by {}", call.group_first, last, call.group_stride);
}

std::string age_text(std::chrono::nanoseconds age) {
  if (age.count() == 0) return "-";
  const double s = std::chrono::duration<double>(age).count();
  return s < 1 ? fmt::format("{:.3f} ms", s * 1e3) : fmt::format("{:.3f} s", s);
}

}  // namespace

CallLog::CallLog(int rank)
    : rank_(rank),
      first_ticks_(ticks()),
      first_time_(std::chrono::steady_clock::now()),
      entries_(kCalls) {}

uint64_t CallLog::enqueue(const LoggedCall& call, std::string_view text) {
  const uint64_t sequence = made_.fetch_add(1) + 1;
  Entry& entry = entries_[sequence % kCalls];
  entry.sequence.store(0, std::memory_order_relaxed);
  entry.number.store(call.number, kRelease);
  entry.count.store(uint64_t(call.count), kRelease);
  entry.what.store(uint64_t(call.op) << 40 | uint64_t(call.dtype) << 32 | uint32_t(call.peer),
                   kRelease);
  entry.group.store(uint64_t(call.group_size) << 42 | uint64_t(call.group_first) << 21 |
                        uint64_t(call.group_stride + (1 << 20)),
                    kRelease);
  store_words(entry.label, text.substr(0, sizeof(entry.label) - 1), kRelease);
  const uint64_t now = ticks();
  entry.enqueued.store(now, kRelease);
  entry.started.store(call.state == LoggedCall::State::kEnqueued ? 0 : now, kRelease);
  entry.ended.store(0, kRelease);
  entry.state.store(uint32_t(call.state), kRelease);
  entry.sequence.store(sequence, kRelease);
  return sequence;
}

// Null if a later call has taken its place.
CallLog::Entry* CallLog::entry_of(uint64_t sequence) {
  Entry& entry = entries_[sequence % kCalls];
  return entry.sequence.load() == sequence ? &entry : nullptr;
}

void CallLog::start(uint64_t sequence) {
  Entry* entry = entry_of(sequence);
  if (entry == nullptr) return;
  entry->started.store(ticks(), kRelease);
  entry->state.store(uint32_t(LoggedCall::State::kStarted), kRelease);
}

void CallLog::end(uint64_t sequence, bool failed) {
  Entry* entry = entry_of(sequence);
  if (entry == nullptr) return;
  entry->ended.store(ticks(), kRelease);
  entry->state.store(uint32_t(failed ? LoggedCall::State::kFailed : LoggedCall::State::kDone),
                     kRelease);
}

std::vector<LoggedCall> CallLog::calls() const {
  const uint64_t now = ticks();
  const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - first_time_;
  const double tick_ns = double(passed.count()) / double(std::max<uint64_t>(1, now - first_ticks_));
  auto age = [&](uint64_t at) {
    if (at == 0) return std::chrono::nanoseconds(0);
    return std::chrono::nanoseconds(
        std::max<int64_t>(1, at < now ? int64_t(double(now - at) * tick_ns) : 0));
  };
  std::vector<LoggedCall> calls;
  const uint64_t made = made_.load();
  for (uint64_t sequence = made < kCalls ? 1 : made - kCalls + 1; sequence <= made; ++sequence) {
    const Entry& entry = entries_[sequence % kCalls];
    if (entry.sequence.load(kAcquire) != sequence) continue;
    LoggedCall call;
    call.number = entry.number.load(kAcquire);
    call.count = int64_t(entry.count.load(kAcquire));
    const uint64_t what = entry.what.load(kAcquire), group = entry.group.load(kAcquire);
    call.op = mesh::CollectiveOp(what >> 40);
    call.dtype = DType(what >> 32 & 0xff);
    call.peer = int32_t(uint32_t(what));
    call.group_size = int(group >> 42);
    call.group_first = int(group >> 21 & 0x1fffff);
    call.group_stride = int(group & 0x1fffff) - (1 << 20);
    call.state = LoggedCall::State(entry.state.load(kAcquire));
    call.enqueued = age(entry.enqueued.load(kAcquire));
    call.started = age(entry.started.load(kAcquire));
    call.ended = age(entry.ended.load(kAcquire));
    char label[kLabelWords * 8];
    for (size_t i = 0; i < kLabelWords; ++i) {
      const uint64_t word = entry.label[i].load(kAcquire);
      memcpy(label + 8 * i, &word, 8);
    }
    label[sizeof(label) - 1] = 0;
    call.label = label;
    if (entry.sequence.load() == sequence) calls.push_back(std::move(call));
  }
  return calls;
}

std::string CallLog::text(size_t most) const {
  std::vector<LoggedCall> all = calls();
  const size_t shown = std::min(most, all.size());
  std::string text =
      fmt::format("the last {} calls of rank {}, oldest first; times are ages\n", shown, rank_);
  text += fmt::format("{:>12} {:>8} {:<15} {:>12} {:<6} {:>5} {:<9} {:>12} {:>12} {:>12}  {}\n",
                      "ranks", "#", "call", "count", "dtype", "peer", "state", "enqueued",
                      "started", "ended", "label");
  for (size_t i = all.size() - shown; i < all.size(); ++i) {
    const LoggedCall& call = all[i];
    text += fmt::format("{:>12} {:>8} {:<15} {:>12} {:<6} {:>5} {:<9} {:>12} {:>12} {:>12}  {}\n",
                        group_text(call), call.number, mesh::name_of(call.op), call.count,
                        smp::name_of(call.dtype), call.peer < 0 ? "-" : std::to_string(call.peer),
                        name_of(call.state), age_text(call.enqueued), age_text(call.started),
                        age_text(call.ended), call.label);
  }
  return text;
}

}  // namespace smp::comm
