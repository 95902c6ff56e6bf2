#include "progress/progress_engine.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "smp/plan/base/check.h"
#include "smp/plan/system/signals_blocked.h"
#include "waiting/futex.h"
#include "waiting/process_state.h"

namespace smp::progress {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kLongBytes = 256 << 10;  // a longer call takes longer than waking a thread
constexpr int64_t kHabitBytes = 4 << 20;   // longer calls gain nothing from a habit
// A rank that left a long call alone is expected to leave this many further long calls alone. The
// last call of a training step, which is waited for at once, does not predict the first calls of
// the next step.
constexpr int kRemembered = 8;
// A thread computes if it took more than this part of the time on a CPU.
constexpr int kLeastComputing = 8;

using Clock = std::chrono::steady_clock;

// The total time for which this thread has waited for long calls.
thread_local LongCall::Span waited_here{0};

std::chrono::nanoseconds own_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Whether the calling thread has computed since it made its last long call. Time that the thread
// spent on the call itself does not count, or the result would confirm itself.
bool computes(const Lane& lane, Clock::time_point now) {
  return own_cpu_time() - lane.cpu_time > (now - lane.cpu_time_at) / kLeastComputing;
}

}  // namespace

int Operation::rank() const { return engine_.rank(); }

bool Operation::done() {
  if (!finished()) engine_.poll(*this);
  if (!finished()) return false;
  if (error_) std::rethrow_exception(error_);
  return true;
}

void Operation::wait() {
  if (!long_.is_left()) {
    if (!finished()) engine_.wait(*this);
  } else {
    const auto begin = Clock::now();
    long_.wait(begin, waited_here);
    if (!finished()) engine_.wait(*this);
    waited_here += Clock::now() - begin;
  }
  if (error_) std::rethrow_exception(error_);
}

void Operation::give_up() { engine_.give_up(); }

ProgressEngine::ProgressEngine(segment::SharedJob& job, int rank, milliseconds timeout,
                               int ranks_here, int cpus, NetworkProgress* network)
    : job_(job),
      rank_(rank),
      timeout_(timeout),
      network_(network),
      doorbell_(job.doorbell(rank)),
      log_(std::make_shared<comm::CallLog>(rank)),
      pid_namespace_(waiting::own_pid_namespace()) {
  job_.board(rank).pid_namespace.store(pid_namespace_);
  job_.board(rank).process.store(getpid());
  job_.board(rank).cpus.store(cpus);
  set_spin_limit(ranks_here, cpus);
  thread_ = system::start_without_signals([this] { run_thread(); });
}

ProgressEngine::~ProgressEngine() {
  stop_.store(true);
  wake_thread();
  thread_.join();
}

void ProgressEngine::wake_thread() {
  segment::RankBoard& board = job_.board(rank_);
  board.thread_bell.fetch_add(1);
  waiting::futex_wake_all(board.thread_bell);
  if (doorbell_ != nullptr) doorbell_->ring();
}

// A caller that left its last long calls alone has something else to do, so the engine's thread
// runs its next calls. A caller that waits for its calls runs them itself. So does a caller that
// computes on a host without spare CPUs, where the thread would take a CPU from another rank.
bool ProgressEngine::is_for_thread(const std::shared_ptr<Operation>& op) const {
  Lane& lane = op->lane;
  const auto before = std::exchange(lane.last_long, op);
  if (before != nullptr && before->long_.was_left_alone(Clock::now())) {
    lane.left_lately = kRemembered;
  } else if (lane.left_lately > 0) {
    --lane.left_lately;
  }
  op->is_for_thread_ = lane.left_lately > 0 && (has_spare_cpus_ || !computes(lane, Clock::now()));
  return op->is_for_thread_ && waiters_.load() == 0;
}

void ProgressEngine::submit(std::shared_ptr<Operation> op) {
  const bool is_long = op->call.bytes() >= kLongBytes, leaves = is_long && is_for_thread(op);
  Lane& lane = op->lane;
  put(std::move(op), leaves);
  if (!is_long) return;
  const auto now = Clock::now();
  lane.last_long->long_.leave(now, waited_here);
  if (lane.left_lately == 0 || has_spare_cpus_) return;  // the system call takes 0.13 us
  lane.cpu_time = own_cpu_time();
  lane.cpu_time_at = now;
}

void ProgressEngine::put(std::shared_ptr<Operation> op, bool leaves) {
  if (!leaves && try_lock()) {
    take_inbox();  // earlier submissions come first
    Lane& lane = op->lane;
    const bool may_rest = op->call.bytes() <= kHabitBytes;
    enqueue(std::move(op));
    run_lanes(kBudget);
    // An operation whose program has ended needs no look at the network here.
    if (more_ || !lane.operations.empty()) pass();
    leave(nullptr, may_rest && is_watched_.load() && waited_at_once_.load() >= kHabit);
    // The thread may be in the long sleep that it began when it had nothing to do.
    if (network_ != nullptr && doorbell_ == nullptr) wake_thread();
    return;
  }
  op->lane.member->note(*op);
  {
    std::lock_guard guard(inbox_mutex_);
    inbox_.push_back(std::move(op));
  }
  inbox_filled_.store(true);
  if (leaves && waiters_.load() == 0) {
    wake_thread();
    if (locked_.load()) job_.ring(rank_);  // a waiting thread may be asleep with the lock
  } else if (try_lock()) {
    pass();
    leave();
  } else {
    job_.ring(rank_);
  }
}

void ProgressEngine::poll(const Operation& op) {
  if (op.is_for_thread_ && waiters_.load() == 0) return wake_thread();
  if (!try_lock()) return;
  if (network_ != nullptr) network_->send_held();
  if (!pass() && network_ != nullptr) network_->send_waiting();
  check_health();
  leave();
}

bool ProgressEngine::pass(int budget) {
  take_inbox();
  const bool moved = network_ != nullptr && network_->poll();
  return run_lanes(budget) || moved;
}

bool ProgressEngine::run_lanes(int budget) {
  bool moved = false;
  more_ = false;
  for (size_t i = 0; i < active_.size();) {
    Lane& lane = *active_[i];
    moved |= advance(lane, budget);
    if (lane.is_empty()) {
      lane.active = false;
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

void ProgressEngine::take_inbox() {
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

void ProgressEngine::enqueue(std::shared_ptr<Operation> op) {
  Lane& lane = op->lane;
  SMP_CHECK_EQ(op->call.number, lane.last_number + 1);
  lane.last_number = op->call.number;
  if (op->at_once) op->at_once();
  if (!lane.operations.empty()) lane.member->note(*op);
  lane.operations.push_back(std::move(op));
  if (lane.active) return;
  lane.active = true;
  active_.push_back(&lane);
}

bool ProgressEngine::complete_those_that_left(Lane& lane) {
  bool moved = false;
  while (!lane.leaving.empty() && lane.leaving.front()->ready()) {
    const std::shared_ptr<Operation> op = lane.leaving.front();
    lane.leaving.pop_front();
    finish(*op, nullptr);
    moved = true;
  }
  return moved;
}

bool ProgressEngine::advance(Lane& lane, int budget) {
  bool moved = !lane.leaving.empty() && complete_those_that_left(lane);
  while (!lane.operations.empty()) {
    Operation* const op = lane.operations.front().get();
    if (!op->started_) {
      op->started_ = true;
      if (op->logged != 0) log_->start(op->logged);
      if (op->call.bytes() > mesh::kOneShotBytes) lane.member->note(*op);
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
    op->budget_ = budget;
    op->program.resume();
    lane.member->note(*op);
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
    const std::shared_ptr<Operation> ended = std::move(lane.operations.front());
    lane.operations.pop_front();
    if (!error && ended->leaves_) {
      lane.leaving.push_back(ended);
      complete_those_that_left(lane);
      continue;
    }
    // Recorded first, because finish() takes back memory that messages use, which may fail too.
    if (error) record(failure_of(*ended, error));
    finish(*ended, error);
    if (!error) continue;
    fail_affected();
    return true;
  }
  return moved;
}

segment::Failure ProgressEngine::failure_of(const Operation& op,
                                            const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const comm::CommError& e) {
    return {e.kind, e.culprit, rank_, e.what()};
  } catch (const std::exception& e) {
    return {comm::CommError::Kind::kAborted, rank_, rank_,
            fmt::format("{}: {}", name(op), e.what())};
  }
}

void ProgressEngine::finish(Operation& op, std::exception_ptr error) {
  op.error_ = error;
  op.lane.member->note(op);
  if (error) op.lane.member->release_buffers();
  if (op.logged != 0) log_->end(op.logged, error != nullptr);
  op.lane.member->finished(op);
  op.program = Program();
  op.rest = Program();
  op.finished_.store(true, std::memory_order_release);
  has_news_ = true;
  if (op.tally != nullptr && !error) op.tally->fetch_add(1);
}

void ProgressEngine::close(std::vector<Lane*> lanes, const std::string& reason) {
  exclusively([&] {
    const segment::Failure failure{comm::CommError::Kind::kAborted, rank_, rank_, reason};
    if (network_ != nullptr) network_->send_held();  // messages that were held back
    for (Lane* lane : lanes) {
      complete_those_that_left(*lane);
      if (!lane->is_empty()) fail_lane(*lane, lane->member->failure().value_or(failure));
      std::erase(active_, lane);
      lane->active = false;
    }
  });
}

void ProgressEngine::exclusively(const std::function<void()>& run) {
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

void ProgressEngine::give_up() {
  const std::string reason = fmt::format("rank {} failed during a call", rank_);
  job_.fail(job_.failure(), {comm::CommError::Kind::kAborted, rank_, rank_, reason});
  // On all lanes, since a call between hosts has steps on another lane.
  exclusively([this] { fail_affected(); });
}

}  // namespace smp::progress
