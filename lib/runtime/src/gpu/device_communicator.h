#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device_collectives.h"
#include "smp/comm/device/device_memory.h"
#include "smp/comm/waiting/unwinding.h"
#include "smp/comm/wrapped_communicator.h"

namespace smp::gpu {

struct DeviceCall;
class DeviceGroup;

// Runs all_reduce, all_gather, reduce_scatter and broadcast of device memory between GPUs
// (DeviceCollectives), and forwards every other call to another Communicator. For ranks that each
// have their own GPU.
//
//   device   in ------- GPUs ------> out      on the group's own stream
//   host        guard: a barrier that names the call, by which ranks detect each other's failures
//
// A call returns when it is enqueued on the device. A group's first call waits for all ranks, and a
// call between ranks that are not connected yet waits until they are. The device waits for the
// Work: wait() returns at once, and later work of the device sees the result. A failure ends the
// device's waiting, here and at the peers, and the next call or wait of the group throws it. A
// time-out, a death and calls that do not match are failures. Point-to-point messages, gather and
// scatter use the other communicator, because crossing messages between GPUs can deadlock.
//
// Sums are in the library's order: the bits differ from the host's, and 16-bit elements are rounded
// more than once. Thread rule of the Communicator behind it; all groups of a rank on one thread.
class DeviceCommunicator final : public comm::WrappedCommunicator {
 public:
  // `inner` takes device memory too. Guards are groups split off `host`, with its time-out.
  // `timeout` limits a GPU call that all ranks have made. All arguments must outlive this object,
  // its splits and all their Works.
  DeviceCommunicator(comm::Communicator& inner, comm::Communicator& host,
                     device::DeviceMemory& memory, DeviceCollectivesLibrary& library,
                     std::chrono::milliseconds timeout);
  ~DeviceCommunicator() override;

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) override;
  std::vector<comm::TrafficCount> traffic() const override;

 private:
  struct Session;  // of all groups of the rank
  struct Counts;
  DeviceCommunicator(std::unique_ptr<comm::Communicator> inner,
                     std::unique_ptr<comm::Communicator> guards, std::shared_ptr<Session> session,
                     std::chrono::milliseconds timeout);

  comm::WorkPtr pass(const Call& call) override;
  bool goes_here(const Call& call) const;
  static void ask(const Call& call, DeviceCollectives& on);
  // Returns when the call is enqueued on the device. `guard`: the host call beside it.
  std::shared_ptr<DeviceCall> start(const std::string& text, comm::WorkPtr guard,
                                    const std::function<void(DeviceCollectives&)>& call);
  void connect();  // before the first call

  const std::shared_ptr<Session> session_;
  const std::unique_ptr<comm::Communicator> guards_;
  std::chrono::milliseconds timeout_;
  std::mutex joining_;  // guards group_, which only the rank's own thread sets
  std::shared_ptr<DeviceGroup> group_;
  comm::WorkPtr last_guard_;
  const waiting::Unwinding unwinding_;
  const std::unique_ptr<Counts> counts_;
};

}  // namespace smp::gpu
