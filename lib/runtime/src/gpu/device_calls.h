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

// The calls of one group on its GPUs. One thread at a time calls the library. The first failure
// stands for all calls. Any thread.
class DeviceGroup {
 public:
  // `guards`: a host group of the same ranks. A host call beside each GPU call detects ranks that
  // are missing, have died or make another call.
  DeviceGroup(std::unique_ptr<DeviceCollectives> calls, comm::Communicator& guards)
      : calls_(std::move(calls)), guards_(guards) {}

  // Makes a call (or none) and waits until it is enqueued on the device. Returns its end there. A
  // failure ends the waiting.
  device::CopyPtr start(const std::function<void(DeviceCollectives&)>& call);
  std::string error();  // the library's
  void throw_if_failed() const;
  bool has_failed() const;
  // Ends the calls in flight here and at the peers.
  void fail(const comm::CommError& error);

 private:
  // Throws the failure once there is one.
  template <class Ask>
  auto ask(const Ask& what);

  std::mutex asking_;  // locked before mutex_
  const std::unique_ptr<DeviceCollectives> calls_;
  comm::Communicator& guards_;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

// A call that is requested or in flight.
struct DeviceCall {
  std::shared_ptr<DeviceGroup> group;
  device::CopyPtr end;
  std::atomic<bool> has_end{false};  // `end` is set, so other threads may read it
  comm::WorkPtr guard;
  std::string text;  // "rank 0: all_reduce 'x' of 4 fp32 on GPUs"
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point deadline{};

  bool is_over() const;  // done or failed; never blocks
};

// A watchdog thread that watches the calls of all groups of a rank until they are over. The rank's
// own thread may be blocked by its GPU, or by the library that waits for a dead peer.
class DeviceWatchdog {
 public:
  explicit DeviceWatchdog(DeviceCollectivesLibrary& library) : library_(library) {}
  ~DeviceWatchdog();
  void add(std::shared_ptr<DeviceCall> call);
  // Stops watching this group's calls.
  void forget(const DeviceGroup& group);

 private:
  void run();

  DeviceCollectivesLibrary& library_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<DeviceCall>> arrived_;
  bool stopping_ = false;

  std::mutex looking_;  // locked before mutex_
  std::vector<std::shared_ptr<DeviceCall>> calls_;
  std::thread thread_;
};

}  // namespace smp::gpu
