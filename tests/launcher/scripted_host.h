#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "smp/launcher/output/console.h"
#include "smp/launcher/supervision/supervisor.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp {

// Another way to reach a machine: nothing runs, a script says what happens. Each step is delivered
// by one dispatch(); signals to processes are recorded and, if the script says so, obeyed.
class ScriptedHost : public job::Host {
 public:
  using Step = std::function<void(job::HostEvents&)>;

  ScriptedHost() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  void then(Step step) {
    steps_.push_back(std::move(step));
    wake();
  }

  std::string name() const override { return "nowhere"; }
  void start(int process, const job::Command&) override {
    if (process == unstartable) throw job::StartError("cannot start 'x': the host is full");
  }
  void signal(int process, int number, job::SignalScope scope) override {
    signals.push_back({process, number, scope});
    if (number != obeyed_signal) return;
    const auto found = own_end.find(process);
    const process::ProcessEnd end =
        found == own_end.end() ? process::ProcessEnd{0, number, false} : found->second;
    then([=](job::HostEvents& events) { events.on_ended(process, end); });
  }
  void show_stacks(int process, job::Debugger) override {
    if (stacks) stacks(process);
  }
  int event_fd() const override { return wake_.number(); }
  void dispatch(job::HostEvents& events) override {
    uint64_t count;
    while (read(wake_.number(), &count, sizeof count) > 0) {
    }
    std::deque<Step> steps;
    steps.swap(steps_);
    if (late_due_.exchange(false)) steps.push_back(late_);
    for (const Step& step : steps) step(events);
  }
  void hold_output(bool) override {}
  std::optional<runinfo::RankProgress> progress(int process) const override {
    const auto found = posted.find(process);
    return found == posted.end() ? std::nullopt : std::optional(found->second);
  }
  int finish(job::HostEvents& events) override {
    if (at_finish) at_finish(events);
    return 0;
  }
  bool heard_since(int, std::chrono::steady_clock::time_point) const override { return !silent; }

  void later(std::chrono::milliseconds time, Step step) {
    timer_ = std::jthread([this, time, step = std::move(step)] {
      std::this_thread::sleep_for(time);
      late_ = step;
      late_due_ = true;
      wake();
    });
  }

  struct Sent {
    int process, number;
    job::SignalScope scope;
  };
  std::vector<Sent> signals;
  std::map<int, runinfo::RankProgress> posted;
  int obeyed_signal = SIGTERM;
  std::map<int, process::ProcessEnd>
      own_end;  // of processes that were about to end when the signal came
  int unstartable = -1;
  std::function<void(int)> stacks;  // what show_stacks() does
  bool silent = false;
  Step at_finish;

 private:
  void wake() {
    const uint64_t one = 1;
    (void)!write(wake_.number(), &one, sizeof one);
  }
  system::FileDescriptor wake_;
  std::deque<Step> steps_;
  std::jthread timer_;
  Step late_;
  std::atomic<bool> late_due_{false};
};

// A job on such a host, whose output nobody sees.
struct SupervisedJob {
  SupervisedJob()
      : null(open("/dev/null", O_WRONLY | O_CLOEXEC)), console(null.number(), null.number()) {}
  job::LaunchJob job(int ranks) {
    job::LaunchJob result;
    result.commands.resize(static_cast<size_t>(ranks), job::Command{{"x"}, {}, ""});
    result.files.resize(static_cast<size_t>(ranks));
    result.rules.grace = std::chrono::milliseconds(50);
    return result;
  }
  system::FileDescriptor null;
  output::Console console;
  ScriptedHost host;
};

inline process::ProcessEnd code(int value) { return {value, 0, false}; }

}  // namespace smp
