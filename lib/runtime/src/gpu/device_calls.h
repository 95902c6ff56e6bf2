#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device_collectives.h"
#include "smp/comm/communicator.h"

namespace smp::gpu {

// One group's calls on its GPUs, of which the library hears from one thread at a time. The first
// failure is that of all; any thread.
class DeviceGroup {
 public:
  // `guards`: the same ranks; a call of theirs beside each of the GPUs' tells who does not come,
  // who has died and who calls something else.
  DeviceGroup(std::unique_ptr<DeviceCollectives> calls, comm::Communicator& guards)
      : calls_(std::move(calls)), guards_(guards) {}

  // Asks for a call, or for none, and waits until it is the device's: its end there. A failure ends
  // the waiting.
  device::CopyPtr start(const std::function<void(DeviceCollectives&)>& call);
  std::string error();  // the library's
  void throw_if_failed() const;
  bool has_failed() const;
  // Ends what is under way here and at the peers.
  void fail(const comm::CommError& error);

 private:
  // Throws the failure once there is one.
  template <class Ask>
  auto ask(const Ask& what);

  std::mutex asking_;  // taken before the other
  const std::unique_ptr<DeviceCollectives> calls_;
  comm::Communicator& guards_;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

// A call that is asked for, or under way.
struct DeviceCall {
  std::shared_ptr<DeviceGroup> group;
  device::CopyPtr end;
  std::atomic<bool> has_end{false};  // then others than the rank's thread may look at it
  comm::WorkPtr guard;
  std::string text;  // "rank 0: all_reduce 'x' of 4 fp32 on GPUs"
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point deadline{};

  bool is_over() const;  // well or not; never blocks
};

// A thread that looks at the calls of all groups of a rank until they are over: the rank's own may
// be waiting for its GPU, or for the library, which waits for a peer that is gone.
class DeviceWatch {
 public:
  explicit DeviceWatch(DeviceCollectivesLibrary& library) : library_(library) {}
  ~DeviceWatch();
  void add(std::shared_ptr<DeviceCall> call);
  // Looks at this group's calls no more.
  void forget(const DeviceGroup& group);

 private:
  void run();

  DeviceCollectivesLibrary& library_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<DeviceCall>> arrived_;
  bool stopping_ = false;

  std::mutex looking_;  // taken before the other
  std::vector<std::shared_ptr<DeviceCall>> calls_;
  std::thread thread_;
};

}  // namespace smp::gpu
