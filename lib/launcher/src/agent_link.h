#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent_messages.h"
#include "silence.h"
#include "smp/launcher/frame_channel.h"
#include "smp/launcher/host_list.h"
#include "smp/launcher/transport.h"

namespace smp {

// The launcher's end of one agent: the process that leads there, the channel, and what is known of
// the ranks behind it. One thread.
class AgentLink {
 public:
  enum class State {
    kConnecting,  // the agent is being started
    kReady,
    kFinished,  // it has ended everything, and itself
    kLost,      // why() says why
  };

  AgentLink(HostSpec host, Transport& transport, WelcomeMessage welcome);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  const HostSpec& host() const { return host_; }
  State state() const { return state_; }
  const std::string& why() const { return why_; }
  const ReadyMessage& about() const { return about_; }
  int64_t clock_skew_ms() const { return clock_skew_ms_; }  // of its host, where it told its clock
  int left_behind() const { return left_behind_; }
  std::optional<RankProgress> progress(int process) const;
  SilenceWatch::Clock::time_point heard_at() const { return silence_.heard_at(); }
  int running() const { return static_cast<int>(running_.size()); }

  // To wait for: readable ones (-1: no longer), and the channel's out while wants_to_write().
  int channel_in() const { return closed_at_ ? -1 : channel_->in(); }
  int channel_out() const { return channel_->out(); }
  int errors() const { return errors_.number(); }
  int process() const { return process_.number(); }
  bool wants_to_write() const { return channel_->wants_to_write(); }

  void start(int process, const Command& command);
  void signal(int process, int number, SignalScope scope);
  void hold_output(bool hold);
  void finish();

  // Reads and writes what is possible; once an interval, looks at the clock.
  void dispatch(HostEvents& events);
  void give_up(const std::string& why, HostEvents& events);

 private:
  void on_frame(const Frame& frame, HostEvents& events);
  void on_hello(const HelloMessage& message);
  void read_errors();
  void see_process_end();
  void check_clock(HostEvents& events);
  void fail(const std::string& why);
  int running_process(PayloadReader& reader) const;

  HostSpec host_;
  Transport& transport_;
  WelcomeMessage welcome_;
  State state_ = State::kConnecting;
  std::string why_;
  std::string failure_;  // found by a frame; becomes why_ when it has been handled
  ReadyMessage about_;
  int64_t clock_skew_ms_ = 0;
  int left_behind_ = 0;

  pid_t pid_ = -1;          // until it was waited for
  FileDescriptor process_;  // pidfd
  FileDescriptor errors_;
  std::string error_text_;  // the last of it
  std::optional<ProcessEnd> process_end_;
  std::optional<std::chrono::steady_clock::time_point> closed_at_;
  std::unique_ptr<FrameChannel> channel_;
  SilenceWatch silence_;
  std::set<int> started_, running_;
  std::map<int, RankProgress> progress_;
  Command before_;
};

}  // namespace smp
