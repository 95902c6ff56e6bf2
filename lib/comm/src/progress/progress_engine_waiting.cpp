#include <sched.h>

#include <algorithm>
#include <utility>

#include "progress/progress_engine.h"
#include "waiting/futex.h"
#include "waiting/pause_cpu.h"

// Which thread runs a rank's programs, and how threads wait. A thread that waits for its call
// *leads*: it runs the programs of all calls. Other waiting threads *follow* it. While no thread
// waits, the engine's own thread runs them.
namespace smp::progress {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Looks of the busy-wait if every rank has a CPU: about a microsecond. It is short because two
// ranks may be on one CPU until the kernel has moved one of them.
constexpr int kSpins = 60;
constexpr microseconds kYieldFor{60};  // then sched_yield for this time, then a futex
// With more ranks than CPUs, a yield gives the CPU to another waiting thread, or takes CPU time
// from a thread that computes. A waiting thread then sleeps at once, unless its last kShortWaits
// waits were all short. Ranks that compute between calls rarely have such short waits.
constexpr int kRanksPerCpuThatYield = 2;
constexpr microseconds kShortWait{200};  // about the time to wake a thread
constexpr int kShortWaits = 64;
// A longer yield means that others want the CPU. Threads then sleep without yielding for
// kCrowdedFor, since a sleeper gets its turn back sooner. With more than kRanksPerCpuThatYield the
// limit is kShortWait. Otherwise it must exceed the time for which another rank on the CPU sums for
// all (see docs/lab/collective-tuning.md).
constexpr milliseconds kSlowYield{1};
constexpr milliseconds kCrowdedFor{5};
constexpr int kThreadBudget = 8;             // chunks, about 0.1 ms, after which it yields
constexpr microseconds kThreadYieldFor{20};  // time of yields without work before it sleeps
constexpr milliseconds kWaiterNap{20};       // how often a sleeping waiter looks at clocks
constexpr milliseconds kThreadNap{100};
// How often a network without a descriptor is polled.
constexpr microseconds kNetworkNap{100};
// The sleep of the engine's thread while another thread waits at the doorbell.
constexpr milliseconds kBesideWaiter{1};
constexpr microseconds kSoonBack{100};  // a rank that waits again within this only calls
constexpr microseconds kByHabit{5};     // a wait that begins within this is at once
// While a rank has the habit of waiting at once, the engine's thread looks only this often, so a
// call stands still for as long when the habit ends. The time is the age of the habit divided by
// kWatchPart, within these limits: each look takes the CPU from ranks that call.
constexpr milliseconds kWatch{1}, kLongestWatch{4};
constexpr int kWatchPart = 16;

// Peers read `sleeper` whenever they raise a counter. A store takes the line from them, so it is
// made only if the value changes.
void show(std::atomic<uint32_t>& sleeper, uint32_t value) {
  if (sleeper.load() != value) sleeper.store(value);
}

}  // namespace

void ProgressEngine::set_spin_limit(int ranks_here, int cpus) {
  has_spare_cpus_ = ranks_here <= cpus;
  spins_ = has_spare_cpus_ && doorbell_ == nullptr ? kSpins : 0;
  has_room_ = ranks_here <= kRanksPerCpuThatYield * cpus;
}

void ProgressEngine::wait(Operation& op) {
  // A thread that holds the lock need not be counted as a waiter, unless it and the engine's thread
  // can both sleep at the doorbell.
  if (doorbell_ == nullptr && try_lock()) {
    note_wait(op);
    lead(op);
    if (network_ != nullptr) network_->send_held();
    return leave();
  }
  const bool is_soon_back = doorbell_ != nullptr && Clock::now() - waited_until_.load() < kSoonBack;
  waiters_.fetch_add(1);
  while (!op.finished()) {
    if (try_lock()) {
      lead(op);
      // A caller that comes back at once may have another message to send with the held ones.
      if (network_ != nullptr && !is_soon_back) network_->send_held();
      leave();
    } else {
      follow(op);
    }
  }
  if (doorbell_ == nullptr) {
    // The engine's thread sleeps while another thread waits, so it has not been woken yet.
    if (waiters_.fetch_sub(1) == 1 && try_lock()) leave();
    return;
  }
  waited_until_.store(Clock::now());
  // The engine's thread does not poll the network while another thread waits. It would only disturb
  // a caller that comes back at once. If that caller stays away, the thread polls by itself.
  if (waiters_.fetch_sub(1) == 1 && !is_soon_back &&
      job_.board(rank_).sleeper.load() == segment::RankBoard::kThread)
    wake_thread();
}

// Runs the programs of all calls until `op` is finished.
void ProgressEngine::lead(const Operation& op) {
  segment::RankBoard& board = job_.board(rank_);
  show(board.sleeper, segment::RankBoard::kNobody);
  int spins = 0;
  Clock::time_point idle_since;
  bool slept = false;
  while (!op.finished()) {
    tell_followers();
    take_inbox();
    if (network_ != nullptr) network_->send_held();
    if (!op.lane.operations.empty()) op.lane.operations.front()->wanted_ = true;
    if (pass()) {
      if (spins > spins_) note_end(idle_since);
      spins = 0;
      // Other lanes may run for a long time, in which peers must not take this rank for stopped.
      if (slept) board.heartbeat_ns.store(Clock::now().time_since_epoch().count());
      continue;
    }
    if (spins++ < spins_) {
      waiting::pause_cpu();
      continue;
    }
    const auto now = Clock::now();
    if (spins == spins_ + 1) idle_since = now;
    note_start(now);
    if (oversubscribed_ && now > oversubscribed_until_) oversubscribed_ = false;
    if (yields() && now - idle_since < kYieldFor && !oversubscribed_) {
      sched_yield();
      const auto back = Clock::now();
      oversubscribed_ = back - now > (has_room_ ? microseconds(kSlowYield) : kShortWait);
      oversubscribed_until_ = back + kCrowdedFor;
      continue;
    }
    if (!op.lane.is_empty()) {
      board.blocked_on.store(op.lane.member->awaited(op.lane.first()) + 1);
      board.heartbeat_ns.store(now.time_since_epoch().count());
      slept = true;
    }
    const uint32_t bell = board.waiter_bell.load();
    board.waits_for.store(awaited_ranks());
    board.sleeper.store(segment::RankBoard::kWaiter);
    if (!pass()) {
      check_health();
      tell_followers();
      if (!op.finished()) sleep(bell);
    }
    show(board.sleeper, segment::RankBoard::kNobody);
  }
  if (slept) board.blocked_on.store(0);
  if (followers_.load() > 0) next_turn();  // before leave() runs other lanes
}

bool ProgressEngine::yields() const { return has_room_ || short_waits_ >= kShortWaits; }

// A peer's move has ended a wait.
void ProgressEngine::note_end(Clock::time_point idle_since) {
  if (has_room_) return;
  short_waits_ = Clock::now() - idle_since < kShortWait ? short_waits_ + 1 : 0;
}

void ProgressEngine::sleep(uint32_t bell) {
  if (network_ != nullptr) network_->send_waiting();
  if (doorbell_ == nullptr)
    return waiting::futex_wait(job_.board(rank_).waiter_bell, bell,
                               network_ == nullptr ? kWaiterNap : kNetworkNap);
  const int network = network_->wait_descriptor();
  if (doorbell_->sleep(network, network < 0 ? kNetworkNap : kWaiterNap)) doorbell_->answer();
}

// The ranks whose counters the first operations of all lanes wait for, as bits; all of them where
// any rank's counter may be the last one.
uint64_t ProgressEngine::awaited_ranks() const {
  uint64_t all = 0;
  for (const Lane* lane : active_) {
    if (lane->operations.empty()) continue;
    const Operation& op = *lane->operations.front();
    if (op.counter_ == nullptr || op.peer_ < 0 || op.stride_ > 0) return ~uint64_t{0};
    all |= segment::SharedJob::bit_of(lane->member->global(op.peer_));
  }
  return all;
}

// Whether an unfinished operation must continue even if no thread waits for it. A call whose data
// all peers have can be completed later: its caller is likely to wait for it now, and then the
// engine's thread would be woken for nothing.
bool ProgressEngine::needs_thread() const {
  return std::any_of(active_.begin(), active_.end(), [this](const Lane* lane) {
    return network_ != nullptr || lane->operations.size() != 1 ||
           !lane->operations.front()->is_given;
  });
}

// Notes when operations began to wait. Most calls end before a clock is read.
void ProgressEngine::note_start(Clock::time_point now) {
  auto note = [now](const auto& operations) {
    if (!operations.empty() && operations.front()->start_ == Clock::time_point())
      operations.front()->start_ = now;
  };
  for (const Lane* lane : active_) {
    note(lane->leaving);
    note(lane->operations);
  }
}

// Counts the calls whose caller waits at once. Such a caller does not need the engine's thread in
// between; waking that thread costs as much as a call of some 100 KiB.
void ProgressEngine::note_wait(const Operation& op) {
  if (op.start_ == Clock::time_point()) return;
  const uint64_t calls = waited_at_once_.load();
  if (Clock::now() - op.start_ < kByHabit) return waited_at_once_.store(calls + 1);
  late_at_ = calls >= late_at_ + kHabit ? calls : 0;  // one late wait may be an interruption
  waited_at_once_.store(late_at_);
}

// Another thread holds the lock and runs our operation with its own.
void ProgressEngine::follow(const Operation& op) {
  followers_.fetch_add(1);
  const uint32_t turn = turn_.load();
  if (!op.finished() && locked_.load()) turn_.wait(turn);
  followers_.fetch_sub(1);
}

void ProgressEngine::unlock() {
  has_news_ = false;
  locked_.store(false);
  if (followers_.load() > 0) next_turn();
}

// Tells followers, while the lock is held, that an operation has finished. A follower counts itself
// and then looks at its operation; so the count is read after the operation was marked as finished.
void ProgressEngine::tell_followers() {
  if (std::exchange(has_news_, false) && followers_.fetch_add(0) > 0) next_turn();
}

void ProgressEngine::next_turn() {
  turn_.fetch_add(1);
  turn_.notify_all();
}

void ProgressEngine::leave(Rest* rest, bool is_soon_back, int budget) {
  segment::RankBoard& board = job_.board(rank_);
  for (;;) {
    more_ = false;
    bool goes_on = needs_thread();
    if (goes_on && !is_soon_back) {
      board.waits_for.store(awaited_ranks());
      board.sleeper.store(segment::RankBoard::kThread);
      // Peers may have raised counters before they could see `sleeper`, so the lanes run once more.
      // The network needs no second look: its messages wake a sleeper whenever they come.
      if (run_lanes(budget)) {
        board.waits_for.store(~uint64_t{0});
        pass(budget);
      }
      goes_on = needs_thread();
    }
    if (goes_on) note_start(Clock::now());
    const bool needed = goes_on && !is_soon_back;
    const bool impatient = doorbell_ != nullptr && network_->needs_poll();
    if (!needed)
      show(board.sleeper, impatient ? segment::RankBoard::kThread : segment::RankBoard::kNobody);
    const bool more = more_ || (impatient && rest == nullptr);
    bool wake = false;
    if (rest != nullptr) {
      rest->network = network_->wait_descriptor();
      rest->soon = rest->network == waiting::kPollAgain || (rest->network < 0 && !active_.empty());
      thread_is_deaf_ = rest->network < 0 && !rest->soon;
    } else if (!active_.empty()) {
      wake = std::exchange(thread_is_deaf_, false);
    } else if (thread_is_deaf_) {
      network_->send_held();  // credits for the messages just received
    }
    unlock();
    // A thread that a peer has woken meanwhile could not get the lock and sleeps again.
    const bool is_missed = needed && board.sleeper.load() == segment::RankBoard::kNobody;
    if (wake || ((more || is_missed) && waiters_.load() == 0)) wake_thread();
    if (!inbox_filled_.load() || !try_lock()) return;
    pass();
  }
}

void ProgressEngine::run_thread() {
  segment::RankBoard& board = job_.board(rank_);
  uint64_t seen = 0;
  Clock::time_point habit_since;
  auto has_habit = [this, &seen] {
    const uint64_t calls = waited_at_once_.load();
    return network_ == nullptr && calls >= kHabit && std::exchange(seen, calls) != calls;
  };
  while (!stop_.load()) {
    const uint32_t bell = board.thread_bell.load();
    const bool was_watched = is_watched_.load();
    bool busy = true, has_heartbeat = false, is_mine = true;
    Rest rest;
    if (waiters_.load() == 0 && try_lock()) {
      if (doorbell_ != nullptr) doorbell_->answer();
      show(board.sleeper, segment::RankBoard::kNobody);
      Clock::time_point idle_since = Clock::now();
      while (is_mine && waiters_.load() == 0) {
        if (pass(kThreadBudget)) {
          if (more_) {  // a long call: threads that compute go first
            unlock();
            sched_yield();
            is_mine = try_lock();
          }
          idle_since = Clock::now();
        } else if (!has_room_ || active_.empty() || Clock::now() - idle_since > kThreadYieldFor) {
          break;
        } else {
          sched_yield();
        }
      }
      if (!is_mine) continue;
      check_health();
      if (network_ != nullptr) network_->send_waiting();
      busy = !active_.empty();
      has_heartbeat = true;
      is_watched_.store(has_habit());
      leave(doorbell_ == nullptr ? nullptr : &rest, false, kThreadBudget);
    }
    if (stop_.load()) return;
    if (doorbell_ == nullptr) {
      // The thread was woken for calls that their caller already runs, so the lock is taken.
      if (!has_heartbeat && has_habit()) is_watched_.store(true);
      const auto now = Clock::now();
      if (!was_watched) habit_since = now;
      const auto trusted = std::chrono::duration_cast<microseconds>(now - habit_since) / kWatchPart;
      const microseconds sleep = is_watched_.load()
                                     ? std::clamp<microseconds>(trusted, kWatch, kLongestWatch)
                                     : kThreadNap;
      waiting::futex_wait(board.thread_bell, bell,
                          network_ != nullptr && busy ? kNetworkNap : sleep);
    } else if (has_heartbeat && waiters_.load() == 0) {
      doorbell_->sleep(rest.network, rest.soon ? kNetworkNap : kThreadNap);
    } else {
      // A waiting thread sleeps at the doorbell. It may leave soon, and the next call have no
      // waiter.
      waiting::futex_wait(board.thread_bell, bell, kBesideWaiter);
    }
  }
}

}  // namespace smp::progress
