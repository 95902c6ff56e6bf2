#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/agent_messages.h"
#include "agent/received_folder.h"
#include "reach/heartbeat_monitor.h"
#include "smp/launcher/agent/host_group.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/local/local_host.h"
#include "smp/launcher/process/disk_thread.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/launcher/reach/frame_channel.h"

namespace smp::agent {

// An agent at work: starts and ends the ranks of its host, and reports their state to the launcher
// over its channel. If the launcher assigns further hosts to the agent, the session reaches the
// agents of these hosts and relays the messages of both sides. One thread.
class AgentSession : public job::HostEvents {
 public:
  using MakeTransport =
      std::function<std::unique_ptr<reach::AgentTransport>(const reach::AgentTransportOptions&)>;

  // `control_fd` as for run_with_watchdog(), or -1. `host` runs the ranks. `files_folder` is the
  // folder for pushed files; empty: the session refuses pushed files.
  AgentSession(reach::FrameChannel channel, int control_fd, local::ProcessHost& host,
               MakeTransport make_agent_transport, std::string files_folder = {});

  // Returns the exit code when the job is over on this host.
  int run();

  void on_output(int process, job::Stream stream, std::string_view bytes,
                 std::chrono::system_clock::time_point time) override;
  void on_ended(int process, const process::ProcessEnd& end) override;
  void on_stopped(int process, bool stopped) override;
  void on_stacks_shown(int process) override;
  void on_not_permitted(int process) override;
  void on_start_failed(int process, const std::string& why) override;
  void on_lost(int process, const job::HostLoss& loss) override;
  void on_still_finishing() override;
  void on_signalled(int number, const std::string& host) override;

 private:
  using Then = std::function<void(std::exception_ptr)>;

  void on_frame(const reach::Frame& frame);
  bool has_to_wait(const reach::Frame& frame) const;
  void act_on(const reach::Frame& frame);
  void beside(size_t bytes, std::function<void()> work, Then then);
  void go_on();
  void welcome(const WelcomeMessage& message);
  void reach(const WelcomeMessage& message);
  void end_below();
  void tell_of_hosts();
  job::Host& host_of(int process);
  void start(StartMessage message);
  void start_here(int process);
  void start_below(int process, int place);
  void poll_once();
  void tell_progress();
  void tell_progress_of(int process);
  void tell_usage();
  void take_push(std::string_view message);
  void tell_pushed();
  void take_input(wire::PayloadReader& reader);
  void tell_input_taken();
  bool told_to_end();
  void tell_watchdog();
  void send_heartbeat();
  void say_last_words();

  reach::FrameChannel channel_;
  int control_fd_;
  local::ProcessHost& host_;
  MakeTransport make_transport_;
  std::unique_ptr<reach::AgentTransport> transport_;  // outlives below_
  std::optional<HostGroup> below_;
  std::set<int> ranks_below_;
  reach::HeartbeatMonitor heartbeat_;
  const std::shared_ptr<ReceivedFolder> received_files_;
  uint64_t taken_ = 0, told_taken_ = 0;  // messages about files
  bool files_refused_ = false;
  // Work that waits for a file system runs on another thread, so that this thread can still send
  // heartbeats. Frames that arrive meanwhile are handled afterwards, in their order.
  struct Beside;
  process::DiskThread disk_;
  std::shared_ptr<Beside> beside_;  // running work, or null
  std::deque<std::pair<reach::FrameType, std::string>> frames_behind_;
  std::optional<environment::ReservedPort> port_;
  std::vector<std::string> inherited_ = environment::own_environment();
  job::Command before_;                 // the command of the rank that was started last
  std::map<int, uint64_t> told_posts_;  // of the running ranks
  std::map<int, uint64_t> told_input_;  // of the ranks that were given input
  std::chrono::steady_clock::time_point told_at_{};
  std::set<int> told_signals_;  // signals that are reported instead of ending the ranks
  bool hold_asked_ = false;
  bool finish_asked_ = false;
  bool over_ = false;  // the launcher has gone, or has broken the protocol
};

}  // namespace smp::agent
