#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/agent_messages.h"
#include "reach/heartbeat_monitor.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/launcher/reach/frame_channel.h"

namespace smp::agent {

// The launcher's end of the connection to one agent: the process that started the agent, the
// channel, and the state of the hosts and ranks behind the agent. Place 0 is the agent's own host;
// the other places are hosts that the agent reaches itself. One thread.
class AgentLink {
 public:
  enum class State {
    kConnecting,  // the agent is being started
    kReady,
    kFinished,  // the agent has ended its ranks and itself
    kLost,      // why() has the reason
  };

  // `welcome` names the hosts below the agent. The link is kLost from the start if no agent can be
  // started.
  AgentLink(hosts::HostSpec host, reach::AgentTransport& transport, WelcomeMessage welcome);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  const hosts::HostSpec& host() const { return host_; }
  State state() const { return state_; }
  const std::string& why() const { return why_; }

  // A host behind the agent. Neither `about` nor `why_not` is set while the host is unknown.
  struct Place {
    std::optional<ReadyMessage> about;
    int64_t clock_skew_ms = 0;  // 0 if the host did not send its clock
    job::HostLoss why_not;
    std::string name;
    bool failed() const { return !why_not.why.empty(); }
    bool known() const { return about || failed(); }
  };
  const std::vector<Place>& places() const { return places_; }
  size_t unknown() const { return unknown_; }  // number of unknown places
  // Places whose state has changed since the last call.
  std::vector<size_t> take_news() { return std::exchange(news_, {}); }
  void stop_waiting(const std::string& why, job::HostEvents& events);  // for unknown places

  int left_behind() const { return left_behind_; }
  std::optional<runinfo::RankProgress> progress(int process) const;
  reach::HeartbeatMonitor::Clock::time_point heard_at() const { return heartbeat_.heard_at(); }
  std::vector<system::HostUsage> take_usage() { return std::exchange(usage_, {}); }
  int running() const { return static_cast<int>(running_.size()); }

  // Descriptors to poll: channel_in(), errors() and process() for reading (-1: not any more), and
  // channel_out() for writing while wants_to_write(). A finished link is not read, so its
  // descriptors must not wake the caller.
  int channel_in() const { return closed_at_ || is_over() ? -1 : channel_->in(); }
  int channel_out() const { return channel_->out(); }
  int errors() const { return is_over() ? -1 : errors_.number(); }
  int process() const { return is_over() ? -1 : process_.number(); }
  bool wants_to_write() const { return !is_over() && channel_->wants_to_write(); }

  void start(int process, size_t place, const job::Command& command);
  bool runs_below(int process) const;
  void signal(int process, int number, job::SignalScope scope);
  void show_stacks(int process, job::Debugger debugger);
  void give_input(int process, std::string_view bytes);  // empty: end of input
  uint64_t input_taken(int process) const;
  void hold_output(bool hold);
  void forward_files(std::string_view message);
  // Messages about files that the agent and all agents below it have taken.
  uint64_t files_taken() const { return pushed_; }
  void finish();

  // Reads and writes without blocking. Checks the time limits once per heartbeat interval.
  void dispatch(job::HostEvents& events);
  void give_up(const std::string& why, job::HostEvents& events, bool of_transport = false);

  // For a caller that waits for all its children itself.
  pid_t pid() const { return pid_; }
  void on_process_end(const process::ProcessEnd& end);

 private:
  bool is_over() const { return state_ == State::kFinished || state_ == State::kLost; }
  void on_frame(const reach::Frame& frame, job::HostEvents& events);
  void on_process_frame(reach::FrameType type, wire::PayloadReader& reader,
                        job::HostEvents& events);
  void on_usage(std::string_view sample);
  void open();
  void try_later(const std::string& why);
  bool is_to_wait();  // until the time of the next try
  void on_hello(const HelloMessage& message);
  void on_ready(size_t place, ReadyMessage message);
  void on_unreached(size_t place, job::HostLoss loss);
  size_t place_of(wire::PayloadReader& reader) const;
  void read_errors();
  void see_process_end();
  void check_clock(job::HostEvents& events);
  void fail(const std::string& why);
  job::HostLoss lose(const job::HostLoss& own);
  int running_process(wire::PayloadReader& reader) const;

  hosts::HostSpec host_;
  reach::AgentTransport& transport_;
  WelcomeMessage welcome_;
  State state_ = State::kConnecting;
  std::string why_;
  // While connecting: reason of the last dropped connection, number of drops, time of the next try.
  std::string dropped_;
  int drops_ = 0;
  std::optional<std::chrono::steady_clock::time_point> try_at_;
  std::string failure_;  // set while a frame is handled; becomes why_ after that
  std::vector<Place> places_;
  size_t unknown_;
  std::vector<size_t> news_;
  int left_behind_ = 0;
  uint64_t pushed_ = 0;

  pid_t pid_ = -1;                  // -1 after waitpid()
  system::FileDescriptor process_;  // pidfd
  system::FileDescriptor errors_;
  std::string error_text_;  // the end of the process's standard error
  std::optional<process::ProcessEnd> process_end_;
  std::optional<std::chrono::steady_clock::time_point> closed_at_;
  std::unique_ptr<reach::FrameChannel> channel_;
  reach::HeartbeatMonitor heartbeat_;
  std::set<int> started_;
  std::map<int, size_t> running_;  // process to place
  std::map<int, runinfo::RankProgress> progress_;
  std::map<int, uint64_t> input_taken_;
  std::vector<system::HostUsage> usage_;  // samples since the last take_usage()
  job::Command before_;
};

}  // namespace smp::agent
