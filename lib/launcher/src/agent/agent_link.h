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

// The near end of one agent: the process that leads there, the channel, and what is known of the
// hosts and ranks behind it: its own (place 0), and those that it reaches itself. One thread.
class AgentLink {
 public:
  enum class State {
    kConnecting,  // the agent is being started
    kReady,
    kFinished,  // it has ended everything, and itself
    kLost,      // why() says why
  };

  // `welcome` names the hosts below. Where no agent can be started the link is lost from the first.
  AgentLink(hosts::HostSpec host, reach::AgentTransport& transport, WelcomeMessage welcome);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  const hosts::HostSpec& host() const { return host_; }
  State state() const { return state_; }
  const std::string& why() const { return why_; }

  // A host behind it, by its place: nothing is known, or what there is, or why it is not reached.
  struct Place {
    std::optional<ReadyMessage> about;
    int64_t clock_skew_ms = 0;  // where it told its clock
    job::HostLoss why_not;
    std::string name;
    bool failed() const { return !why_not.why.empty(); }
    bool known() const { return about || failed(); }
  };
  const std::vector<Place>& places() const { return places_; }
  size_t unknown() const { return unknown_; }  // places of which nothing is known
  // Places of which something else is known since the last call.
  std::vector<size_t> take_news() { return std::exchange(news_, {}); }
  void stop_waiting(const std::string& why, job::HostEvents& events);  // for what is unknown

  int left_behind() const { return left_behind_; }
  std::optional<runinfo::RankProgress> progress(int process) const;
  reach::HeartbeatMonitor::Clock::time_point heard_at() const { return heartbeat_.heard_at(); }
  std::vector<system::HostUsage> take_usage() { return std::exchange(usage_, {}); }
  int running() const { return static_cast<int>(running_.size()); }

  // To wait for: readable ones (-1: no longer), and the channel's out while wants_to_write(). Of
  // one that has finished nothing more is read, so it must wake nobody.
  int channel_in() const { return closed_at_ || is_over() ? -1 : channel_->in(); }
  int channel_out() const { return channel_->out(); }
  int errors() const { return is_over() ? -1 : errors_.number(); }
  int process() const { return is_over() ? -1 : process_.number(); }
  bool wants_to_write() const { return !is_over() && channel_->wants_to_write(); }

  void start(int process, size_t place, const job::Command& command);
  bool runs_below(int process) const;
  void signal(int process, int number, job::SignalScope scope);
  void show_stacks(int process, job::Debugger debugger);
  void give_input(int process, std::string_view bytes);  // none: the end
  uint64_t input_taken(int process) const;
  void hold_output(bool hold);
  void forward_files(std::string_view message);
  uint64_t files_taken() const { return pushed_; }  // taken there, and by those below
  void finish();

  // Reads and writes what is possible; once an interval, looks at the clock.
  void dispatch(job::HostEvents& events);
  void give_up(const std::string& why, job::HostEvents& events, bool of_transport = false);

  // For a parent that collects all its children itself.
  pid_t pid() const { return pid_; }
  void on_process_end(const process::ProcessEnd& end);

 private:
  bool is_over() const { return state_ == State::kFinished || state_ == State::kLost; }
  void on_frame(const reach::Frame& frame, job::HostEvents& events);
  void on_process_frame(reach::FrameType type, PayloadReader& reader, job::HostEvents& events);
  void on_usage(std::string_view sample);
  void open();
  void try_later(const std::string& why);
  bool is_to_wait();  // for the time of another try
  void on_hello(const HelloMessage& message);
  void on_ready(size_t place, ReadyMessage message);
  void on_unreached(size_t place, job::HostLoss loss);
  size_t place_of(PayloadReader& reader) const;
  void read_errors();
  void see_process_end();
  void check_clock(job::HostEvents& events);
  void fail(const std::string& why);
  job::HostLoss lose(const job::HostLoss& own);
  int running_process(PayloadReader& reader) const;

  hosts::HostSpec host_;
  reach::AgentTransport& transport_;
  WelcomeMessage welcome_;
  State state_ = State::kConnecting;
  std::string why_;
  // While connecting: why it was dropped last, how often, and when it is tried again.
  std::string dropped_;
  int drops_ = 0;
  std::optional<std::chrono::steady_clock::time_point> try_at_;
  std::string failure_;  // found by a frame; becomes why_ when it has been handled
  std::vector<Place> places_;
  size_t unknown_;
  std::vector<size_t> news_;
  int left_behind_ = 0;
  uint64_t pushed_ = 0;

  pid_t pid_ = -1;                  // until it was waited for
  system::FileDescriptor process_;  // pidfd
  system::FileDescriptor errors_;
  std::string error_text_;  // the last of it
  std::optional<process::ProcessEnd> process_end_;
  std::optional<std::chrono::steady_clock::time_point> closed_at_;
  std::unique_ptr<reach::FrameChannel> channel_;
  reach::HeartbeatMonitor heartbeat_;
  std::set<int> started_;
  std::map<int, size_t> running_;  // and their places
  std::map<int, runinfo::RankProgress> progress_;
  std::map<int, uint64_t> input_taken_;
  std::vector<system::HostUsage> usage_;  // the last
  job::Command before_;
};

}  // namespace smp::agent
