#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device.h"
#include "smp/comm/device/gdr_memory.h"
#include "smp/comm/wrapped_communicator.h"

namespace smp::pytorch {

// The calls of a process group from its first tensor on a device on: a thread of its own makes them
// in their order through a StagedCommunicator, since they start only when the device has come to
// their tensors, which nobody who computes should wait for.
//
//   caller       | all_reduce |  goes on computing ...          | wait |
//   this thread                | to host | message | to device |
//
// Called by one thread at a time.
class DeviceCalls final : public comm::WrappedCommunicator {
 public:
  // `communicator` outlives it. Throws ConfigError where SMP_GDRCOPY=on, and there is no GDRCopy.
  DeviceCalls(comm::Communicator& communicator, std::unique_ptr<Device> device);
  ~DeviceCalls() override;  // once its Works are done

  Device& device() { return *device_; }
  const device::GdrMemory& memory() const { return memory_; }
  // Whether the calls from now on are of the device's memory, or of the host's.
  void set_on_device(bool on_device) { on_device_ = on_device; }

  void set_timeout(std::chrono::milliseconds timeout) override;
  // A process group of torch makes its parts by meeting anew.
  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override;

 private:
  class Relayed;
  // A call, or a time-out for those after it.
  struct Job {
    std::shared_ptr<Relayed> work;
    Call call;
    std::string label;  // the call's
    std::optional<std::chrono::milliseconds> timeout;
    std::unique_ptr<Device::Point> after;  // of those of the device
    comm::WorkPtr under_way;
  };

  comm::WorkPtr pass(const Call& call) override;
  comm::WorkPtr add(Job job);
  void run();

  const std::unique_ptr<Device> device_;
  device::GdrMemory memory_;  // the device's
  bool on_device_ = false;
  std::mutex mutex_;
  std::vector<Job> arrived_;
  std::condition_variable filled_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace smp::pytorch
