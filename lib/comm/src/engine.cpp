#include "engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "futex.h"
#include "smp/plan/check.h"

namespace smp::shm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kBudget = 64;
constexpr int kSpins = 2000;           // pauses before the first yield, if CPUs suffice
constexpr microseconds kYieldFor{60};  // then yields, then a futex
// With more ranks to a CPU a yield hands it to another that waits, so a waiter sleeps at once:
// measured with 8 ranks on 2 CPUs.
constexpr int kRanksPerCpuThatYield = 2;
constexpr microseconds kSlowYield{200};      // a yield this long: others want the CPUs, so sleep,
constexpr milliseconds kCrowdedFor{5};       // for a while: a sleeper gets its turn back sooner
constexpr microseconds kThreadYieldFor{20};  // the engine's own thread gives way sooner
constexpr milliseconds kWaiterNap{20};       // how often a sleeper looks at clocks and failures
constexpr milliseconds kThreadNap{100};
constexpr microseconds kNetworkNap{100};  // nobody rings when a message of another host has come

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

bool Operation::done() {
  if (!finished()) engine_.poll();
  if (!finished()) return false;
  if (error_) std::rethrow_exception(error_);
  return true;
}

void Operation::wait() {
  if (!finished()) engine_.wait(*this);
  if (error_) std::rethrow_exception(error_);
}

void Operation::give_up() { engine_.give_up(); }

Engine::Engine(Job& job, int rank, milliseconds timeout, int ranks_here, Mover* mover)
    : job_(job),
      rank_(rank),
      timeout_(timeout),
      mover_(mover),
      log_(std::make_shared<CallLog>(rank)) {
  const int cpus = allowed_cpus();
  spins_ = ranks_here <= cpus ? kSpins : 0;
  yields_ = ranks_here <= kRanksPerCpuThatYield * cpus;
  thread_ = std::thread([this] { run_thread(); });
}

Engine::~Engine() {
  stop_.store(true);
  wake_thread();
  thread_.join();
}

void Engine::wake_thread() {
  RankBoard& board = job_.board(rank_);
  board.thread_bell.fetch_add(1);
  futex_wake_all(board.thread_bell);
}

void Engine::submit(std::shared_ptr<Operation> op) {
  if (try_lock()) {
    take_inbox();  // what was submitted earlier comes first
    enqueue(std::move(op));
    pass();
    leave();
    if (mover_ != nullptr) wake_thread();  // it may sleep as long as there was nothing to do
    return;
  }
  {
    std::lock_guard guard(inbox_mutex_);
    inbox_.push_back(std::move(op));
  }
  inbox_filled_.store(true);
  if (try_lock()) {
    pass();
    leave();
  } else {
    job_.ring(rank_);
  }
}

void Engine::poll() {
  if (!try_lock()) return;
  pass();
  check_health();
  leave();
}

void Engine::wait(Operation& op) {
  waiters_.fetch_add(1);
  while (!op.finished()) {
    if (try_lock()) {
      lead(op);
      leave();
    } else {
      follow(op);
    }
  }
  waiters_.fetch_sub(1);
}

// Runs everybody's programs until `op` is finished.
void Engine::lead(const Operation& op) {
  RankBoard& board = job_.board(rank_);
  board.sleeper.store(RankBoard::kNobody);
  int spins = 0;
  Clock::time_point idle_since;
  bool slept = false;
  while (!op.finished()) {
    take_inbox();
    if (!op.lane.operations.empty()) op.lane.operations.front()->wanted_ = true;
    if (pass()) {
      spins = 0;
      continue;
    }
    if (spins++ < spins_) {
      pause_cpu();
      continue;
    }
    const auto now = Clock::now();
    if (spins == spins_ + 1) idle_since = now;
    if (crowded_ && now > crowded_until_) crowded_ = false;
    if (yields_ && now - idle_since < kYieldFor && !crowded_) {
      sched_yield();
      const auto back = Clock::now();
      crowded_ = back - now > kSlowYield;
      crowded_until_ = back + kCrowdedFor;
      continue;
    }
    if (!slept && !op.lane.operations.empty()) {
      const Operation& head = *op.lane.operations.front();
      board.blocked_on.store(head.peer_ < 0 ? 0 : op.lane.member->global(head.peer_) + 1);
      slept = true;
    }
    const uint32_t bell = board.waiter_bell.load();
    board.waits_for.store(movers());
    board.sleeper.store(RankBoard::kWaiter);
    if (!pass()) {
      check_health();
      if (!op.finished())
        futex_wait(board.waiter_bell, bell, mover_ == nullptr ? kWaiterNap : kNetworkNap);
    }
    board.sleeper.store(RankBoard::kNobody);
  }
  if (slept) board.blocked_on.store(0);
}

// The ranks whose counters the first operations of all lanes wait for; all where a counter of any
// may be the last one.
uint64_t Engine::movers() const {
  uint64_t all = 0;
  for (const Lane* lane : active_) {
    if (lane->operations.empty()) continue;
    const Operation& op = *lane->operations.front();
    if (op.counter_ == nullptr || op.peer_ < 0 || op.stride_ > 0) return ~uint64_t{0};
    all |= Job::bit_of(lane->member->global(op.peer_));
  }
  return all;
}

// Another thread has the lock and runs our operation with its own.
void Engine::follow(const Operation& op) {
  followers_.fetch_add(1);
  const uint32_t turn = turn_.load();
  if (!op.finished() && locked_.load()) turn_.wait(turn);
  followers_.fetch_sub(1);
}

void Engine::leave() {
  RankBoard& board = job_.board(rank_);
  for (;;) {
    more_ = false;
    if (!active_.empty()) {
      board.waits_for.store(movers());
      board.sleeper.store(RankBoard::kThread);
      if (pass()) {  // programs wait for other ranks now, which may have moved already
        board.waits_for.store(~uint64_t{0});
        pass();
      }
    }
    if (active_.empty()) board.sleeper.store(RankBoard::kNobody);
    const bool more = more_;
    locked_.store(false);
    if (followers_.load() > 0) {
      turn_.fetch_add(1);
      turn_.notify_all();
    } else if (more && waiters_.load() == 0) {
      job_.ring(rank_);
    }
    if (!inbox_filled_.load() || !try_lock()) return;
    pass();
  }
}

void Engine::run_thread() {
  RankBoard& board = job_.board(rank_);
  while (!stop_.load()) {
    const uint32_t bell = board.thread_bell.load();
    bool busy = true;
    if (waiters_.load() == 0 && try_lock()) {
      board.sleeper.store(RankBoard::kNobody);
      Clock::time_point idle_since = Clock::now();
      while (waiters_.load() == 0) {
        if (pass()) {
          idle_since = Clock::now();
        } else if (!yields_ || active_.empty() || Clock::now() - idle_since > kThreadYieldFor) {
          break;
        } else {
          sched_yield();
        }
      }
      check_health();
      busy = !active_.empty();
      leave();
    }
    if (!stop_.load())
      futex_wait(board.thread_bell, bell, mover_ != nullptr && busy ? kNetworkNap : kThreadNap);
  }
}

bool Engine::pass() {
  take_inbox();
  bool moved = mover_ != nullptr && mover_->poll();
  more_ = false;
  for (size_t i = 0; i < active_.size();) {
    Lane& lane = *active_[i];
    moved |= advance(lane);
    if (lane.operations.empty()) {
      lane.active = false;
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

void Engine::take_inbox() {
  if (!inbox_filled_.load()) return;
  std::vector<std::shared_ptr<Operation>> taken;
  std::vector<Task*> tasks;
  {
    std::lock_guard guard(inbox_mutex_);
    taken.swap(inbox_);
    tasks.swap(tasks_);
    inbox_filled_.store(false);
  }
  for (auto& op : taken) enqueue(std::move(op));
  for (Task* task : tasks) {
    try {
      task->run();
    } catch (...) {
      task->error = std::current_exception();
    }
    task->done.store(true);
  }
}

void Engine::enqueue(std::shared_ptr<Operation> op) {
  Lane& lane = op->lane;
  SMP_CHECK_EQ(op->call.number, lane.last_number + 1);
  lane.last_number = op->call.number;
  lane.operations.push_back(std::move(op));
  if (lane.active) return;
  lane.active = true;
  active_.push_back(&lane);
}

bool Engine::advance(Lane& lane) {
  bool moved = false;
  while (!lane.operations.empty()) {
    const std::shared_ptr<Operation> op = lane.operations.front();
    if (!op->started_) {
      op->started_ = true;
      op->start_ = Clock::now();
      if (op->logged != 0) log_->start(op->logged);
      if (job_.failures() != 0) {
        if (const auto failure = lane.member->failure()) {
          fail_lane(lane, *failure);
          return true;
        }
      }
    } else if (!op->ready()) {
      return moved;
    }
    moved = true;
    op->counter_ = nullptr;
    op->budget_ = kBudget;
    op->program.resume();
    if (!op->program.done()) {
      if (op->budget_ > 0) continue;
      more_ = true;
      return true;
    }
    const std::exception_ptr error = op->program.error();
    if (!error && op->rest) {
      op->program = std::exchange(op->rest, Program());
      continue;
    }
    lane.operations.pop_front();
    finish(*op, error);
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const CommError& e) {
      report(e.kind, e.culprit, e.what());
    } catch (const std::exception& e) {
      report(CommError::Kind::kAborted, rank_, name(*op) + ": " + e.what());
    }
    return true;
  }
  return moved;
}

void Engine::finish(Operation& op, std::exception_ptr error) {
  op.error_ = error;
  if (op.logged != 0) log_->end(op.logged, error != nullptr);
  op.lane.member->finished(op);
  op.program = Program();
  op.rest = Program();
  op.finished_.store(true);
  if (op.tally != nullptr && !error) op.tally->fetch_add(1);
  if (followers_.load() > 0) {
    turn_.fetch_add(1);
    turn_.notify_all();
  }
}

void Engine::close(std::vector<Lane*> lanes, const std::string& reason) {
  exclusively([&] {
    const Failure failure{CommError::Kind::kAborted, rank_, rank_, reason};
    for (Lane* lane : lanes) {
      if (!lane->operations.empty()) fail_lane(*lane, lane->member->failure().value_or(failure));
      std::erase(active_, lane);
      lane->active = false;
    }
  });
}

void Engine::exclusively(const std::function<void()>& run) {
  Task task{run, nullptr};
  {
    std::lock_guard guard(inbox_mutex_);
    tasks_.push_back(&task);
  }
  inbox_filled_.store(true);
  while (!task.done.load()) {
    if (try_lock()) {
      pass();
      leave();
    } else {
      job_.ring(rank_);
      sched_yield();
    }
  }
  if (task.error) std::rethrow_exception(task.error);
}

void Engine::give_up() {
  const std::string reason = fmt::format("rank {} failed while a call was under way", rank_);
  job_.fail(job_.failure(), {CommError::Kind::kAborted, rank_, rank_, reason});
  // All lanes: a call between hosts has steps on another one.
  exclusively([this] { fail_affected(); });
}

}  // namespace smp::shm
