#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "call.h"
#include "doorbell.h"
#include "job.h"
#include "long_call.h"
#include "looking.h"
#include "mover.h"
#include "program.h"
#include "smp/comm/call_log.h"
#include "smp/comm/communicator.h"
#include "smp/comm/home_process.h"
#include "smp/comm/unwinding.h"

// One rank's engine runs the programs of its calls. Whoever has the lock makes progress: a thread
// in wait() if there is one, else the engine's own thread, which sleeps until a peer rings.
namespace smp::shm {

class Engine;
class Operation;

// What the engine needs to know of a rank's side of a group.
class Member {
 public:
  virtual ~Member() = default;
  virtual int global(int rank) const = 0;
  virtual std::optional<Failure> failure() const = 0;  // of the group, its parents or the job
  virtual bool has_left(int rank) const = 0;           // for good, in good order
  virtual bool has_abandoned(int rank) const = 0;  // by an exception: what it means is not said yet
  virtual bool has_called(int rank, const Call& call) const = 0;
  // Throws CommError when a peer has called something else in the place of `op`.
  virtual void check_calls(const Operation& op) const = 0;
  // Whom an operation really waits for when it waits for a counter of `peer`.
  virtual int mover_of(const Operation&, int peer) const { return peer; }
  // The rank of the job that an operation waits for now, itself or in a step; -1: none.
  virtual int awaited(Operation& op) const = 0;
  // By which the members on other hosts know the group of this call; 0: by none.
  virtual uint64_t key_of(const Operation&) const { return 0; }
  // Tells those who ask what this rank calls, and the log, once. Of a short call whose turn has
  // come when what peers wait for is on its way, which takes as long; before its maker goes on.
  virtual void note(Operation& op) = 0;
  virtual void finished(const Operation& op) = 0;  // to count its traffic
  // An operation has failed, and the whole group with it: nothing shall touch the memory of its
  // callers any more.
  virtual void let_go() {}
  // Why no message reaches a rank on another host, if none does.
  virtual std::optional<std::string> unreachable(int) const { return std::nullopt; }
};

// Operations of one lane run one after the other; lanes are independent. A group has one for its
// collectives and one for each direction of each pair.
struct Lane {
  Member* member = nullptr;
  std::deque<std::shared_ptr<Operation>> operations;
  // Whose programs are through, before these; what they have sent has not left yet.
  std::deque<std::shared_ptr<Operation>> leaving;
  uint64_t last_number = 0;  // of the calls that were put here, which keep their order
  bool active = false;
  // Of the thread that makes the calls: its last long one, and how many more it is trusted to leave
  // alone, as it did lately.
  std::shared_ptr<Operation> last_long;
  // The CPU time that their maker had taken when it was last asked for, and when that was.
  std::chrono::nanoseconds cpu_time{0};
  std::chrono::steady_clock::time_point cpu_time_at;
  int left_lately = 0;

  bool is_empty() const { return operations.empty() && leaving.empty(); }
  Operation& first() const { return *(leaving.empty() ? operations : leaving).front(); }
};

class Operation {
 public:
  Operation(Engine& engine, Lane& its_lane, Call&& made, std::chrono::milliseconds limit)
      : call(std::move(made)),
        print(fingerprint(call)),
        lane(its_lane),
        timeout(limit),
        engine_(engine) {}

  int rank() const;  // of the job, whose call it is; while it is not finished
  bool done();
  void wait();
  void give_up();  // touches no buffer any more when this returns
  bool started() const { return started_; }
  bool finished() const { return finished_.load(); }
  bool failed() const { return error_ != nullptr; }  // for Member::finished()
  // The engine's thread runs it: its caller has something else to do.
  bool is_for_thread() const { return is_for_thread_; }
  // Whose counter its program waits for, as rank of the group; -1: nobody's. Under the lock.
  int awaited() { return started_ && !ready() ? peer_ : -1; }

  // For co_await in a program: goes on when `counter`, which `peer` moves, has reached `target`.
  auto reaches(const std::atomic<uint64_t>& counter, uint64_t target, int peer) {
    struct Awaitable {
      Operation& op;
      const std::atomic<uint64_t>& counter;
      uint64_t target;
      int peer;
      bool await_ready() const { return --op.budget_ > 0 && counter.load() >= target; }
      void await_suspend(std::coroutine_handle<>) const {
        op.waits_for(&counter, 0, 1, target, peer);
      }
      void await_resume() const {}
    };
    return Awaitable{*this, counter, target, peer};
  }

  // The same of all ranks' counters, which lie `stride` bytes apart, rank 0's first: whoever moves
  // the last one rings. `or_wanted`: goes on as well when this operation is wanted.
  auto all_reach(const std::atomic<uint64_t>& first, size_t stride, int size, uint64_t target,
                 bool or_wanted = false) {
    struct Awaitable {
      Operation& op;
      bool await_ready() const { return --op.budget_ > 0 && op.ready(); }
      void await_suspend(std::coroutine_handle<>) const {}
      void await_resume() const {}
    };
    waits_for(&first, stride, size, target, 0);
    or_wanted_ = or_wanted;
    return Awaitable{*this};
  }

  // For the end of a program: the operation is complete when this is so, and the next of its lane
  // may begin.
  void completes_when(const std::atomic<uint64_t>& counter, uint64_t target, int peer) {
    waits_for(&counter, 0, 1, target, peer);
    leaves_ = true;
  }

  const Call call;
  const uint64_t print;  // its fingerprint
  Lane& lane;
  std::chrono::milliseconds timeout;
  std::function<void()> at_once;  // when it is put into its lane, under the lock
  FrameRoom frame_room;           // before its programs
  Program program;
  Program rest;         // goes on when `program` is through
  uint64_t logged = 0;  // its entry in the engine's log; 0: none
  bool posted = false;
  bool is_given = false;  // peers have all that they need of it: it may rest until somebody waits
  int64_t wire_bytes = 0;
  bool at_second_hand = false;  // the peer that it waits for may wait for others
  // Counts it when it is complete. One that failed is not: what waits for it fails as well.
  std::atomic<uint64_t>* tally = nullptr;

 private:
  friend class Engine;

  void waits_for(const std::atomic<uint64_t>* first, size_t stride, int counters, uint64_t target,
                 int peer) {
    counter_ = first;
    stride_ = stride;
    counters_ = counters;
    target_ = target;
    peer_ = peer;
    or_wanted_ = false;
  }

  bool ready() {
    if (counter_ == nullptr || (or_wanted_ && wanted_)) return true;
    for (; counter_->load() >= target_; ++peer_) {
      if (--counters_ == 0) {
        counter_ = nullptr;
        return true;
      }
      counter_ = reinterpret_cast<const std::atomic<uint64_t>*>(
          reinterpret_cast<const std::byte*>(counter_) + stride_);
    }
    return false;
  }

  Engine& engine_;
  const std::atomic<uint64_t>* counter_ = nullptr;  // what the program waits for, the first of
  int counters_ = 0;                                // so many left,
  size_t stride_ = 0;                               // as far apart
  uint64_t target_ = 0;
  int peer_ = -1;
  bool or_wanted_ = false;
  bool wanted_ = false;  // somebody waits for it or for one behind it, or half of its time is over
  int budget_ = 0;       // chunks that it may still move before other lanes get their turn
  bool started_ = false;
  bool leaves_ = false;
  bool is_for_thread_ = false;
  LongCall long_;                                // if it is one
  std::chrono::steady_clock::time_point start_;  // as noted when it first had to wait for long
  std::chrono::steady_clock::time_point asked_;  // about it, before the time was over
  Looking overdue_;                              // at whom it waits for
  std::exception_ptr error_;
  std::atomic<bool> finished_{false};
};

// What callers hold of an operation.
class Handle final : public Work {
 public:
  explicit Handle(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  ~Handle() override {
    if (!operation_->finished() && unwinding_.now() && home_.is_here()) operation_->give_up();
  }
  const std::shared_ptr<Operation>& operation() const { return operation_; }
  bool done() override {
    check();
    return operation_->done();
  }
  void wait() override {
    check();
    operation_->wait();
  }

 private:
  // What is complete needs nobody.
  void check() const {
    if (!home_.is_here() && !operation_->finished()) home_.check(operation_->rank());
  }

  const std::shared_ptr<Operation> operation_;
  const HomeProcess home_;
  const Unwinding unwinding_;
};

class Engine {
 public:
  // `ranks_here`: of the job, on this host, which may use so many CPUs together. `mover` may be
  // null.
  Engine(Job& job, int rank, std::chrono::milliseconds timeout, int ranks_here, int cpus,
         Mover* mover);
  ~Engine();

  int rank() const { return rank_; }
  const std::shared_ptr<CallLog>& log() const { return log_; }
  std::chrono::milliseconds timeout() const { return timeout_; }  // of calls that name none
  // Of another process of this host, as far as the kernel tells.
  ProcessState state(int rank) const;
  // Whether ranks have CPUs to spare for threads beside those that compute.
  bool has_spare_cpus() const { return has_spare_cpus_; }
  void submit(std::shared_ptr<Operation> op);  // by its maker
  void wait(Operation& op);
  void poll(const Operation& op);  // one helping hand
  // Ends what is under way on these lanes of one member; afterwards the engine knows nothing of
  // them.
  void close(std::vector<Lane*> lanes, const std::string& reason);
  void give_up();  // the whole job, with this rank to blame
  // Runs `task` under the lock, between the steps of programs; returns when it is done.
  void exclusively(const std::function<void()>& task);

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    const std::function<void()>& run;
    std::exception_ptr error;
    std::atomic<bool> done{false};
  };

  // So many calls with a wait at once are a habit: the next one will not need the thread either.
  static constexpr uint64_t kHabit = 16;

  bool try_lock() { return !locked_.load() && !locked_.exchange(true); }
  struct Rest {
    int network = -1;  // where to sleep beside it
    bool soon = true;  // it must be polled again soon
  };
  // Gives the lock back and sees to it that somebody goes on. `rest`: for one who goes to sleep.
  // `is_soon_back`: it need not be this rank's thread, for the caller comes back to wait.
  void leave(Rest* rest = nullptr, bool is_soon_back = false, int budget = kBudget);
  void tell_followers();
  void next_turn();
  void unlock();  // for a moment, in which another may take over
  // How long threads look before they sleep, with so many ranks on this host's CPUs.
  void set_patience(int ranks_here, int cpus);
  void lead(const Operation& op);
  void follow(const Operation& op);
  void run_thread();

  static constexpr int kBudget = 64;  // chunks
  void put(std::shared_ptr<Operation> op, bool leaves);
  // To be asked once, when a long call is made.
  bool is_for_thread(const std::shared_ptr<Operation>& op) const;
  // One round over all lanes, each until it must wait or has moved `budget` chunks; whether
  // anything moved.
  bool pass(int budget = kBudget);
  bool run_lanes(int budget);  // the same without a look at the network and for new calls
  bool advance(Lane& lane, int budget);
  bool complete_those_that_left(Lane& lane);
  bool yields() const;
  void note_end(Clock::time_point idle_since);
  void nap(uint32_t bell);  // the leader's
  bool needs_thread() const;
  void note_start(Clock::time_point now);
  void note_wait(const Operation& op);
  uint64_t movers() const;
  void enqueue(std::shared_ptr<Operation> op);
  Failure failure_of(const Operation& op, const std::exception_ptr& error) const;
  void finish(Operation& op, std::exception_ptr error);
  void take_inbox();
  void wake_thread();

  void check_health();
  void check_peer(Operation& op);
  void fail_affected();
  void fail_lane(Lane& lane, const Failure& failure);
  void record(const Failure& failure);  // of the job
  void report(CommError::Kind kind, int culprit, const std::string& text);
  void blame(Operation& op, int late);
  void ask_early(Operation& op, int late);
  struct Verdict {
    int culprit;      // who waits for nobody
    bool is_stopped;  // as far as is known
    std::string text;
  };
  std::optional<Verdict> verdict(const Operation& op, int late) const;
  std::optional<Standing> standing(int rank, const Operation& op) const;
  bool has_looked(int rank, const Operation& op) const;  // while this rank did, with its time over
  std::optional<bool> is_stopped(int rank, const Operation& op) const;
  std::string last_call(int rank) const;
  std::string name(const Operation& op) const;  // "rank 0: all_reduce #12 ..."

  Job& job_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  Mover* const mover_;
  const Doorbell* const doorbell_;  // where threads sleep beside the network, if they do
  const std::shared_ptr<CallLog> log_;
  const uint64_t pid_namespace_;
  bool has_spare_cpus_;
  int spins_;
  bool has_room_;  // for ranks that yield the CPU

  std::atomic<bool> locked_{false};
  std::atomic<int> waiters_{0};
  std::atomic<Clock::time_point> waited_until_{};  // by whoever came back last
  bool has_news_ = false;                          // something is finished; under the lock
  std::atomic<int> followers_{0};
  std::atomic<uint32_t> turn_{0};  // moves when a follower should look again

  std::mutex inbox_mutex_;
  std::vector<std::shared_ptr<Operation>> inbox_;
  std::vector<Task*> tasks_;
  std::atomic<bool> inbox_filled_{false};

  std::vector<Lane*> active_;  // under the lock, as all below
  bool more_ = false;          // a lane could go on at once
  // Calls for which their maker waited without delay, in a row but for one late wait in kHabit.
  std::atomic<uint64_t> waited_at_once_{0};
  uint64_t late_at_ = 0;  // so many of them came before the last late one
  // The thread looks every few milliseconds, woken or not. It says no only where it has the lock.
  std::atomic<bool> is_watched_{false};
  // The engine's thread sleeps long, and no message of another host wakes it.
  bool thread_is_deaf_ = false;
  uint64_t short_waits_ = 0;  // for any move, in a row
  bool crowded_ = false;      // more threads than CPUs want to run
  Clock::time_point crowded_until_;
  uint32_t failures_seen_ = 0;
  Clock::time_point health_checked_;

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace smp::shm
