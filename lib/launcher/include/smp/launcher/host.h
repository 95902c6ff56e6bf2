#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/progress_page.h"

// A Host is the one door through which the launcher reaches a machine: it starts processes there,
// tells what becomes of them, and ends them with all that they have started. LocalHost is this
// machine; tests bring their own. One thread uses a Host.
namespace smp {

struct Command {
  std::vector<std::string> arguments;    // arguments[0] is the program, looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", the whole environment
  std::string error_file{};              // where it leaves its last words; empty: nowhere
  std::vector<int> cpus{};               // that it may run on, ascending; empty: all
};

struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  // 0 = it ended by itself
  bool dumped_core = false;
  std::string last_words{};    // what stands in its error file
  bool out_of_memory = false;  // it was the kernel that killed it, because memory ran out

  bool failed() const { return exit_code != 0 || signal != 0; }
  // What a shell would report: the exit code, or 128 + signal.
  int code() const { return signal != 0 ? 128 + signal : exit_code; }
};

enum class Stream { kOut, kErr };
enum class SignalScope { kProcess, kGroup };  // the process alone; with what runs in its group

class HostEvents {
 public:
  virtual ~HostEvents() = default;
  // `time`: when its host read them.
  virtual void on_output(int process, Stream stream, std::string_view bytes,
                         std::chrono::system_clock::time_point time) = 0;
  virtual void on_ended(int process, const ProcessEnd& end) = 0;
  virtual void on_stopped(int process, bool stopped) = 0;  // false: it was continued
  // A host that is not this one says only later that start() failed, in the words of StartError.
  virtual void on_start_failed(int process, const std::string& why) = 0;
  // Its host is out of reach: what becomes of it is not known here. The host ends it by itself.
  virtual void on_lost(int process, const std::string& why) = 0;
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

  // Readable when dispatch() has something to deliver.
  virtual int event_fd() const = 0;
  // Delivers what has happened since the last call; never blocks.
  virtual void dispatch(HostEvents& events) = 0;
  // While held, output stays in the pipes, so that processes that write much wait.
  virtual void hold_output(bool hold) = 0;

  // What the process has posted of itself; of one that has ended, its last. Empty: nothing.
  virtual std::optional<RankProgress> progress(int /*process*/) const { return std::nullopt; }

  // Kills every process that is left, whoever of ours started it, then delivers all output and ends
  // that are still missing. Returns how many processes the started ones had left behind.
  virtual int finish(HostEvents& events) = 0;

  // False if the process's host has not spoken since: it may be about to be lost.
  virtual bool heard_since(int /*process*/, std::chrono::steady_clock::time_point) const {
    return true;
  }
};

}  // namespace smp
