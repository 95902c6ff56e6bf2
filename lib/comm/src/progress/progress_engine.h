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

#include "progress/call.h"
#include "progress/long_call.h"
#include "progress/network_progress.h"
#include "progress/program.h"
#include "segment/shared_job.h"
#include "smp/comm/call_log.h"
#include "smp/comm/communicator.h"
#include "smp/comm/waiting/creator_process.h"
#include "smp/comm/waiting/unwinding.h"
#include "waiting/doorbell.h"
#include "waiting/observation.h"

// The progress engine of one rank runs the programs (coroutines) of its calls. The thread that
// holds the engine's lock makes all of them progress. That is a thread in wait() if there is one,
// else the engine's own thread, which sleeps until a peer wakes it.
namespace smp::progress {

class ProgressEngine;
class Operation;

// One rank's side of a group, as the engine sees it.
class Member {
 public:
  virtual ~Member() = default;
  virtual int global(int rank) const = 0;
  // The failure of the group, of its parents or of the job, if any.
  virtual std::optional<segment::Failure> failure() const = 0;
  virtual bool has_left(int rank) const = 0;  // the rank ended its side in good order
  // An exception has destroyed that rank's side of the group. The rank may still report the reason.
  virtual bool has_abandoned(int rank) const = 0;
  virtual bool has_called(int rank, const Call& call) const = 0;
  // Throws CommError if a peer has made another call in the place of `op`.
  virtual void check_calls(const Operation& op) const = 0;
  // The rank that must act before `peer`'s counter moves, if that is another rank.
  virtual int counter_owner(const Operation&, int peer) const { return peer; }
  // The rank of the job that an operation, or a step of it, waits for now; -1: none.
  virtual int awaited(Operation& op) const = 0;
  // The key by which members on other hosts know the group of this call; 0 for a group inside a
  // host.
  virtual uint64_t key_of(const Operation&) const { return 0; }
  // Logs the call, once, and shows it to ranks that ask what this rank calls. A short call whose
  // turn has come is noted after its data is published, while the data travels to the peers. Each
  // call is noted before the function that makes it returns.
  virtual void note(Operation& op) = 0;
  virtual void finished(const Operation& op) = 0;  // counts its traffic
  // Called when an operation, and with it the whole group, has failed. Afterwards nothing touches
  // the memory of the group's callers.
  virtual void release_buffers() {}
  // The reason why no message reaches this rank of another host; nothing if messages do.
  virtual std::optional<std::string> unreachable(int) const { return std::nullopt; }
};

// Operations of one lane run one after the other; lanes are independent. A group has one lane for
// its collectives and one for each direction of each pair of ranks.
struct Lane {
  Member* member = nullptr;
  std::deque<std::shared_ptr<Operation>> operations;
  // Earlier operations whose programs have ended, but whose messages have not left yet.
  std::deque<std::shared_ptr<Operation>> leaving;
  uint64_t last_number = 0;  // of the last call in this lane: calls keep their order
  bool active = false;
  // The last long call made here.
  std::shared_ptr<Operation> last_long;
  // CPU time of the calling thread after it had made that call.
  std::chrono::nanoseconds cpu_time{0};
  // The time of that call.
  std::chrono::steady_clock::time_point cpu_time_at;
  // How many more long calls are expected to be left alone, since the caller did so lately.
  int left_lately = 0;

  bool is_empty() const { return operations.empty() && leaving.empty(); }
  Operation& first() const { return *(leaving.empty() ? operations : leaving).front(); }
};

class Operation {
 public:
  Operation(ProgressEngine& engine, Lane& its_lane, Call&& made, std::chrono::milliseconds limit)
      : call(std::move(made)),
        print(fingerprint(call)),
        lane(its_lane),
        timeout(limit),
        engine_(engine) {}

  int rank() const;  // the caller's, in the job; only while the call is not finished
  bool done();
  void wait();
  void give_up();  // no buffer is touched any more when this returns
  bool started() const { return started_; }
  bool finished() const { return finished_.load(); }
  bool failed() const { return error_ != nullptr; }  // read by Member::finished()
  // The engine's thread runs this operation, because its caller does something else.
  bool is_for_thread() const { return is_for_thread_; }
  // The rank of the group whose counter its program waits for; -1: none. Under the lock.
  int awaited() { return started_ && !ready() ? peer_ : -1; }

  // For co_await in a program: continues when `counter`, which rank `peer` raises, has reached
  // `target`.
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

  // As above, for the counters of all ranks, which lie `stride` bytes apart, rank 0's first. The
  // rank that raises the last one wakes this rank. `or_wanted`: continues as well when this
  // operation is wanted (see wanted_).
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

  // For the end of a program: the operation is complete once `counter` has reached `target`. The
  // next operation of its lane need not wait for that.
  void completes_when(const std::atomic<uint64_t>& counter, uint64_t target, int peer) {
    waits_for(&counter, 0, 1, target, peer);
    leaves_ = true;
  }

  const Call call;
  const uint64_t print;  // fingerprint of the call
  Lane& lane;
  std::chrono::milliseconds timeout;
  std::function<void()> at_once;  // run when the operation is put into its lane, under the lock
  FrameRoom frame_room;           // declared before the programs, whose frames lie in it
  Program program;
  Program rest;         // runs after `program`
  uint64_t logged = 0;  // its entry in the engine's log; 0: none
  bool posted = false;
  bool is_given = false;  // peers have all their data: it may rest until a wait
  int64_t wire_bytes = 0;
  bool is_indirect = false;  // the awaited peer may itself wait for other ranks
  // Raised when the operation is complete. Not raised after a failure, because operations that wait
  // for this one then fail too.
  std::atomic<uint64_t>* tally = nullptr;

 private:
  friend class ProgressEngine;

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

  ProgressEngine& engine_;
  const std::atomic<uint64_t>* counter_ = nullptr;  // the first that the program still waits for
  int counters_ = 0;                                // how many are left, from that one on
  size_t stride_ = 0;                               // bytes from one to the next
  uint64_t target_ = 0;
  int peer_ = -1;
  bool or_wanted_ = false;
  // A thread waits for this operation or a later one, or half of its time-out is over.
  bool wanted_ = false;
  int budget_ = 0;  // chunks that it may move before other lanes get their turn
  bool started_ = false;
  bool leaves_ = false;
  bool is_for_thread_ = false;
  LongCall long_;                                // used by long calls only
  std::chrono::steady_clock::time_point start_;  // when it was first seen waiting
  std::chrono::steady_clock::time_point asked_;  // when others were last asked about it
  // How long this rank has looked for the culprit after the operation's time-out.
  waiting::Observation overdue_;
  std::exception_ptr error_;
  std::atomic<bool> finished_{false};
};

// The Work that callers hold.
class WorkHandle final : public comm::Work {
 public:
  explicit WorkHandle(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  ~WorkHandle() override {
    if (!operation_->finished() && unwinding_.now() && creator_.is_here()) operation_->give_up();
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
  // In a forked child only a complete call may be used.
  void check() const {
    if (!creator_.is_here() && !operation_->finished()) creator_.check(operation_->rank());
  }

  const std::shared_ptr<Operation> operation_;
  const waiting::CreatorProcess creator_;
  const waiting::Unwinding unwinding_;
};

class ProgressEngine {
 public:
  // `ranks_here`: the number of the job's ranks on this host; together they may use `cpus` CPUs.
  // `network`: null without a network.
  ProgressEngine(segment::SharedJob& job, int rank, std::chrono::milliseconds timeout,
                 int ranks_here, int cpus, NetworkProgress* network);
  ~ProgressEngine();

  int rank() const { return rank_; }
  const std::shared_ptr<comm::CallLog>& log() const { return log_; }
  std::chrono::milliseconds timeout() const { return timeout_; }  // the job's
  // The state of another process of this host, as far as the kernel tells.
  waiting::ProcessState state(int rank) const;
  // Whether every rank of this host can have a CPU to itself.
  bool has_spare_cpus() const { return has_spare_cpus_; }
  void submit(std::shared_ptr<Operation> op);  // by the thread that makes the call
  void wait(Operation& op);
  void poll(const Operation& op);  // makes progress once and does not wait
  // Ends the operations on these lanes of one member, and removes the lanes from the engine.
  void close(std::vector<Lane*> lanes, const std::string& reason);
  void give_up();  // fails the whole job and blames this rank
  // Runs `task` under the lock, between the steps of programs, and returns when it is done.
  void exclusively(const std::function<void()>& task);

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    const std::function<void()>& run;
    std::exception_ptr error;
    std::atomic<bool> done{false};
  };

  // After this many calls in a row that were waited for at once, the next is expected to be waited
  // for at once too. It then needs no wake-up of the engine's thread.
  static constexpr uint64_t kHabit = 16;

  bool try_lock() { return !locked_.load() && !locked_.exchange(true); }
  struct Rest {
    int network = -1;  // a descriptor to sleep at, or kPollAgain or kNoDescriptor
    bool soon = true;  // the network must be polled again soon
  };
  // Releases the lock and makes sure that a thread continues the calls under way. `rest`: filled
  // for the engine's thread, which goes to sleep. `is_soon_back`: that thread is not needed, since
  // the caller comes back to wait.
  void leave(Rest* rest = nullptr, bool is_soon_back = false, int budget = kBudget);
  void tell_followers();
  void next_turn();
  void unlock();  // so that another thread may take over
  // Decides how long threads spin before they sleep.
  void set_spin_limit(int ranks_here, int cpus);
  void lead(const Operation& op);
  void follow(const Operation& op);
  void run_thread();

  static constexpr int kBudget = 64;  // chunks
  void put(std::shared_ptr<Operation> op, bool leaves);
  // To be asked once, when a long call is made.
  bool is_for_thread(const std::shared_ptr<Operation>& op) const;
  // One round over all lanes: each runs until it must wait or has moved `budget` chunks. Returns
  // whether anything moved.
  bool pass(int budget = kBudget);
  bool run_lanes(int budget);  // without the network and new calls
  bool advance(Lane& lane, int budget);
  bool complete_those_that_left(Lane& lane);
  bool yields() const;
  void note_end(Clock::time_point idle_since);
  void sleep(uint32_t bell);  // puts the leader to sleep
  bool needs_thread() const;
  void note_start(Clock::time_point now);
  void note_wait(const Operation& op);
  uint64_t awaited_ranks() const;
  void enqueue(std::shared_ptr<Operation> op);
  segment::Failure failure_of(const Operation& op, const std::exception_ptr& error) const;
  void finish(Operation& op, std::exception_ptr error);
  void take_inbox();
  void wake_thread();

  void check_health();
  void check_peer(Operation& op);
  void fail_affected();
  void fail_lane(Lane& lane, const segment::Failure& failure);
  void record(const segment::Failure& failure);  // as the job's failure
  void report(comm::CommError::Kind kind, int culprit, const std::string& text);
  void blame(Operation& op, int late);
  void ask_early(Operation& op, int late);
  struct Verdict {
    int culprit;      // the rank at the end of the chain of waits
    bool is_stopped;  // as far as is known
    std::string text;
  };
  std::optional<Verdict> verdict(const Operation& op, int late) const;
  std::optional<PeerStatus> status_of(int rank, const Operation& op) const;
  bool has_heartbeat(int rank, const Operation& op) const;  // since the time-out
  std::optional<bool> is_stopped(int rank, const Operation& op) const;
  std::string last_call(int rank) const;
  std::string name(const Operation& op) const;  // "rank 0: all_reduce #12 ..."

  segment::SharedJob& job_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  NetworkProgress* const network_;
  // Where threads sleep that also watch a network; null: they sleep at futexes.
  const waiting::Doorbell* const doorbell_;
  const std::shared_ptr<comm::CallLog> log_;
  const uint64_t pid_namespace_;
  bool has_spare_cpus_;
  int spins_;
  bool has_room_;  // few enough ranks to a CPU for waiting threads to yield

  std::atomic<bool> locked_{false};
  std::atomic<int> waiters_{0};
  std::atomic<Clock::time_point> waited_until_{};  // when the last wait ended
  bool has_news_ = false;                          // an operation has finished; under the lock
  std::atomic<int> followers_{0};
  std::atomic<uint32_t> turn_{0};  // changes when followers shall look again

  std::mutex inbox_mutex_;
  std::vector<std::shared_ptr<Operation>> inbox_;
  std::vector<Task*> tasks_;
  std::atomic<bool> inbox_filled_{false};

  std::vector<Lane*> active_;  // lanes with operations; under the lock, as all below
  bool more_ = false;          // a lane could go on at once
  // Calls in a row that were waited for at once; one late wait in kHabit is forgiven.
  std::atomic<uint64_t> waited_at_once_{0};
  uint64_t late_at_ = 0;  // what the last late wait has set this count to
  // The engine's thread looks by itself every few milliseconds. Cleared only by that thread, while
  // it holds the lock.
  std::atomic<bool> is_watched_{false};
  // The engine's thread is in a long sleep that no message of another host ends.
  bool thread_is_deaf_ = false;
  uint64_t short_waits_ = 0;     // waits in a row that took less than kShortWait
  bool oversubscribed_ = false;  // more threads than CPUs want to run
  Clock::time_point oversubscribed_until_;
  uint32_t failures_seen_ = 0;
  Clock::time_point health_checked_;

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace smp::progress
