#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "smp/launcher/process/process_end.h"
#include "smp/plan/runinfo/progress_page.h"
#include "smp/plan/system/host_usage.h"

// A Host is the launcher's only interface to a machine. It starts processes there, reports what
// becomes of them, and ends them with all that they have started. LocalHost is this machine,
// agent::HostGroup other ones, and tests bring their own. One thread uses a Host.
namespace smp::job {

struct Command {
  std::vector<std::string> arguments;    // arguments[0] is the program, looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", the whole environment
  std::string error_file{};              // where it leaves its last words; empty: nowhere
  std::vector<int> cpus{};               // that it may run on, ascending; empty: all
  bool reads_input = false;              // what give_input() says; else its input is empty
  // Blocked when it starts, so that none ends it before its program can take them.
  std::vector<int> held_signals{};
};

// Why the connection to a host was lost.
struct HostLoss {
  std::string why{};
  // Another host on the way to it is what was lost: this one may be well.
  bool through_other = false;
  bool of_transport = false;  // the command that reached all hosts has ended: all may be well
};

enum class Stream { kOut, kErr };
enum class Debugger { kGdb, kPySpy };         // of native code; of Python
enum class SignalScope { kProcess, kGroup };  // the process alone; with what runs in its group

class HostEvents {
 public:
  virtual ~HostEvents() = default;
  // `time`: when its host read them.
  virtual void on_output(int process, Stream stream, std::string_view bytes,
                         std::chrono::system_clock::time_point time) = 0;
  virtual void on_ended(int process, const process::ProcessEnd& end) = 0;
  virtual void on_stopped(int process, bool stopped) = 0;  // false: it was continued
  // signal() was refused: the process belongs to another user by now (setuid, sudo). Told once.
  virtual void on_not_permitted(int /*process*/) {}
  // So many processes that others had started outlive finish(): they too belong to another user.
  virtual void on_not_ended(int /*count*/) {}
  // What show_stacks() had to show has come, as output.
  virtual void on_stacks_shown(int /*process*/) {}
  // A host that is not this one says only later that start() failed, in the words of StartError.
  virtual void on_start_failed(int process, const std::string& why) = 0;
  // Its host is out of reach: what becomes of it is not known here. The host ends it by itself.
  virtual void on_lost(int process, const HostLoss& loss) = 0;
  // finish() still waits; told again and again.
  virtual void on_still_finishing() {}
  // A host has been sent a signal that asks for a checkpoint.
  virtual void on_signalled(int /*number*/, const std::string& /*host*/) {}
};

// For who does not want to hear.
class IgnoredEvents : public HostEvents {
 public:
  void on_output(int, Stream, std::string_view, std::chrono::system_clock::time_point) override {}
  void on_ended(int, const process::ProcessEnd&) override {}
  void on_stopped(int, bool) override {}
  void on_start_failed(int, const std::string&) override {}
  void on_lost(int, const HostLoss&) override {}
};

// The process could not be started; what() names program and reason.
class StartError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Host {
 public:
  virtual ~Host() = default;
  virtual std::string name() const = 0;

  // Starts a process under a number of the caller's choice (its rank). Throws StartError, or tells
  // HostEvents.
  virtual void start(int process, const Command& command) = 0;

  // Does nothing if the process has ended.
  virtual void signal(int process, int signal, SignalScope scope) = 0;

  // Has a debugger write the stacks of the process's threads to its standard error, or why that
  // cannot be. Does nothing if the process has ended.
  virtual void show_stacks(int /*process*/, Debugger) {}

  // Standard input of a process that reads_input. Never blocks: the bytes that its pipe has taken
  // so far, or that nobody will read, are input_taken(), of a process that has ended all.
  virtual void give_input(int /*process*/, std::string_view /*bytes*/) {}
  virtual void end_input(int /*process*/) {}
  virtual uint64_t input_taken(int /*process*/) const { return ~uint64_t{0}; }

  // Readable when dispatch() has something to deliver.
  virtual int event_fd() const = 0;
  // Delivers what has happened since the last call; never blocks.
  virtual void dispatch(HostEvents& events) = 0;
  // While held, output stays in the pipes, so that processes that write much wait.
  virtual void hold_output(bool hold) = 0;

  // What the process has posted of itself; of one that has ended, its last. Empty: nothing.
  virtual std::optional<runinfo::RankProgress> progress(int /*process*/) const {
    return std::nullopt;
  }

  // What the processes have used since the last call, where the host was told to look.
  virtual std::vector<system::HostUsage> take_usage() { return {}; }

  // Kills every process that is left, whoever of ours started it, then delivers all output and ends
  // that are still missing. Returns how many processes the started ones had left behind.
  virtual int finish(HostEvents& events) = 0;

  // False if the process's host has not spoken since: it may be about to be lost.
  virtual bool heard_since(int /*process*/, std::chrono::steady_clock::time_point) const {
    return true;
  }
};

}  // namespace smp::job
