#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "smp/launcher/job/host.h"
#include "smp/launcher/local/child_owner.h"
#include "smp/launcher/process/disk_thread.h"
#include "smp/launcher/process/file_limit.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::health {
class XidWatch;
}
namespace smp::process {
class InputPipe;
class OomWatch;
class RankCgroup;
class Spawner;
}  // namespace smp::process

namespace smp::local {

class ProgressPages;
class UsageSampler;

// This machine. Each process leads a session of its own, reads /dev/null or what it is given,
// inherits no other open file, and dies with the thread that made this object (PDEATHSIG). Orphans
// of the processes become children of this process (subreaper), where finish() finds them, so every
// child of the process is taken for one of its own, but for those of a neighbour. Where a control
// group is delegated to this process, they are in one of their own.
class LocalHost : public ProcessHost {
 public:
  LocalHost();
  ~LocalHost() override;  // ends what is left
  LocalHost(const LocalHost&) = delete;
  LocalHost& operator=(const LocalHost&) = delete;

  std::string name() const override;
  void start(int process, const job::Command& command) override;
  void signal(int process, int signal, job::SignalScope scope) override;
  void show_stacks(int process, job::Debugger debugger) override;
  void give_input(int process, std::string_view bytes) override;
  void end_input(int process) override;
  uint64_t input_taken(int process) const override;
  int event_fd() const override { return events_.number(); }
  void dispatch(job::HostEvents& events) override;
  void hold_output(bool hold) override;
  std::optional<runinfo::RankProgress> progress(int process) const override;
  std::vector<system::HostUsage> take_usage() override;
  int finish(job::HostEvents& events) override;

  void sample_usage(std::chrono::milliseconds every) override;
  pid_t pid_of(int process) const;
  void set_neighbour(ChildOwner* neighbour) override { neighbour_ = neighbour; }

 private:
  struct Child {
    int process = 0;
    std::string program, error_file;
  };
  struct ReadWords;  // of an error file, by another thread
  struct Ended {     // that nobody was told of yet
    int process = 0;
    process::ProcessEnd end;
    std::shared_ptr<ReadWords> words;  // null: there are none to wait for
    std::chrono::steady_clock::time_point since;
  };
  struct Pipe {
    int process = 0;
    job::Stream stream = job::Stream::kOut;
    system::FileDescriptor read_end;
    bool of_debugger = false;
  };

  void open_pipe(int process, job::Stream stream, system::FileDescriptor read_end,
                 bool of_debugger = false);
  void reap(job::HostEvents& events);
  void take_end(int process, process::ProcessEnd end, const std::string& error_file,
                job::HostEvents& events);
  void tell_ends(job::HostEvents& events, std::chrono::milliseconds patience);
  void watch_input(int process);
  void close_input(int process);
  bool read_pipe(int number, job::HostEvents& events);
  void read_ready_pipes(job::HostEvents& events);

  std::unordered_map<pid_t, Child> process_of_pid_;  // running ones
  std::unordered_map<int, pid_t> pid_of_process_;
  std::unordered_map<int, Pipe> pipes_;                                  // by file descriptor
  std::unordered_map<int, std::unique_ptr<process::InputPipe>> inputs_;  // by process
  std::map<int, bool> not_permitted_;  // processes that may not be signalled; whether that is told
  std::set<int> full_inputs_;          // processes that do not read what they are given
  system::FileDescriptor null_;
  system::FileDescriptor child_signals_;  // signalfd
  system::FileDescriptor output_;         // epoll over the pipes
  system::FileDescriptor events_;  // epoll over child_signals_, output_, full inputs and disk_
  std::unique_ptr<process::OomWatch> oom_watch_;
  std::unique_ptr<ProgressPages> pages_;
  std::unique_ptr<process::Spawner> spawner_;
  std::unique_ptr<process::RankCgroup> group_;
  std::unique_ptr<health::XidWatch> xid_watch_;
  process::DiskThread disk_;               // reads error files
  std::deque<Ended> ended_;                // in their order
  std::string proven_program_;             // the last that was executed for sure
  std::unique_ptr<UsageSampler> sampler_;  // none: nobody asked
  bool held_ = false;
  ChildOwner* neighbour_ = nullptr;
  sigset_t mask_before_;
  const process::RaisedFileLimit file_limit_;
};

}  // namespace smp::local
