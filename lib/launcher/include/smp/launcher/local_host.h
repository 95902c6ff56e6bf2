#pragma once

#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "smp/launcher/file_descriptor.h"
#include "smp/launcher/file_limit.h"
#include "smp/launcher/host.h"

namespace smp {

class OomWatch;
class ProgressPages;

// This machine. Each process leads a session of its own, reads /dev/null, inherits no other open
// file, and dies with the thread that made this object (PDEATHSIG). Orphans of the processes become
// children of this process (subreaper), where finish() finds them, so a LocalHost must be the only
// parent in its process: every child is taken for one of its own.
class LocalHost : public Host {
 public:
  LocalHost();
  ~LocalHost() override;  // ends what is left
  LocalHost(const LocalHost&) = delete;
  LocalHost& operator=(const LocalHost&) = delete;

  std::string name() const override;
  void start(int process, const Command& command) override;
  void signal(int process, int signal, SignalScope scope) override;
  int event_fd() const override { return events_.number(); }
  void dispatch(HostEvents& events) override;
  void hold_output(bool hold) override;
  std::optional<RankProgress> progress(int process) const override;
  int finish(HostEvents& events) override;

  pid_t pid_of(int process) const;

 private:
  struct Child {
    int process = 0;
    std::string error_file;
  };
  struct Pipe {
    int process = 0;
    Stream stream = Stream::kOut;
    FileDescriptor read_end;
  };

  void open_pipe(int process, Stream stream, FileDescriptor read_end);
  void reap(HostEvents& events);
  bool read_pipe(int number, HostEvents& events);
  void read_ready_pipes(HostEvents& events);

  std::unordered_map<pid_t, Child> process_of_pid_;  // running ones
  std::unordered_map<int, pid_t> pid_of_process_;
  std::unordered_map<int, Pipe> pipes_;  // by file descriptor
  FileDescriptor null_;
  FileDescriptor child_signals_;  // signalfd
  FileDescriptor output_;         // epoll over the pipes
  FileDescriptor events_;         // epoll over child_signals_ and output_
  std::unique_ptr<OomWatch> oom_watch_;
  std::unique_ptr<ProgressPages> pages_;
  bool held_ = false;
  sigset_t mask_before_;
  const RaisedFileLimit file_limit_;
};

}  // namespace smp
