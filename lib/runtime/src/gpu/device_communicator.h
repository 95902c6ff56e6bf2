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

// Passes everything on to another Communicator but all_reduce, all_gather, reduce_scatter and
// broadcast of a device's memory, which GPUs do among themselves (DeviceCollectives): for ranks
// that each have a GPU of their own.
//
//   device   in ------- GPUs ------> out      on a stream of the group's own
//   host        guard: a barrier that names the call, by which ranks hear of each other
//
// A call returns when the device has it: the first of a group when all ranks have come, and ranks
// that are not connected yet when they are. Its Work is waited for by the device: wait() returns at
// once, and what the device is asked to compute next sees the result. What fails on the way ends
// what the device waits for, here and at the peers, and is thrown by the next call or wait of the
// group; so are the time-out of a call, a death and calls that do not match. Messages of pairs, and
// what a root collects or deals out, go the other communicator's way: GPUs would hold each other up
// whose messages cross.
//
// Sums are in the library's order: other bits than on the host, and 16-bit elements are rounded
// more than once. Thread rule of the Communicator behind it; all groups of a rank on one thread.
class DeviceCommunicator final : public comm::WrappedCommunicator {
 public:
  // `inner` takes device memory too. Guards are groups split off `host`, with its time-out;
  // `timeout` is that of GPUs which do not end what all ranks have called. All outlive this object,
  // what is split off it, and all of their Works.
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
  // Returns when the device has it. `guard`: the ranks' own call beside it.
  std::shared_ptr<DeviceCall> start(const std::string& text, comm::WorkPtr guard,
                                    const std::function<void(DeviceCollectives&)>& call);
  void come_together();  // before the first call

  const std::shared_ptr<Session> session_;
  const std::unique_ptr<comm::Communicator> guards_;
  std::chrono::milliseconds timeout_;
  std::mutex joining_;  // of group_, which the rank's own thread alone sets
  std::shared_ptr<DeviceGroup> group_;
  comm::WorkPtr last_guard_;
  const waiting::Unwinding unwinding_;
  const std::unique_ptr<Counts> counts_;
};

}  // namespace smp::gpu
