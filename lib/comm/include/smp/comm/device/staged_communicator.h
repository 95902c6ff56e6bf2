#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smp/comm/wrapped_communicator.h"

namespace smp::device {

class DeviceMemory;

// Passes everything on to another Communicator, and what lies in a device's memory by way of the
// host's:
//
//   device   in ----.                        .---> out      computing goes on beside both copies
//                    \ copy                 / copy
//   host              buffer --message--> buffer            symmetric memory of the communicator
//
// Long messages go in parts: while one is between the ranks, the next comes from the device and the
// one before goes there. All ranks cut alike, so a call must be of device memory on all or on none.
// The parts' label names the whole call, for ranks must not mistake parts of unlike calls.
//
// A call returns at once: its message starts when its bytes are here, in the order of the calls of
// all groups of the rank, since a rank may wait for one of them only when those before it have
// started. It is done when its result is in place for what the device is asked to compute next.
// Waiting starts all that is due, brings on its way what is through, and finishes nothing else.
// Memory of the host goes straight through, behind what was called before.
//
// Thread rule of the Communicator behind it; all groups of a rank on one thread.
class StagedCommunicator final : public comm::WrappedCommunicator {
 public:
  // Gives the buffers of the host, zeroed.
  using Allocate = std::function<std::shared_ptr<std::byte[]>(int64_t bytes)>;

  // Both outlive this object, what is split off it, and all of their Works. Buffers are symmetric
  // memory of `inner`, or what `allocate` makes of that.
  StagedCommunicator(comm::Communicator& inner, DeviceMemory& memory, Allocate allocate = {});
  ~StagedCommunicator() override;

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override;
  // Of the calls that have not started, too, it is what it was when they were made.
  void set_timeout(std::chrono::milliseconds timeout) override;
  // A call that was made in parts counts once.
  std::vector<comm::TrafficCount> traffic() const override;

 private:
  class Staging;  // of all groups of the rank
  StagedCommunicator(std::unique_ptr<comm::Communicator> inner, std::shared_ptr<Staging> staging);

  comm::WorkPtr pass(const Call& call) override;
  bool is_of_device(const Call& call) const;
  comm::WorkPtr stage(const Call& call);

  // The parts of a call, as elements of what one rank has or of the whole where ranks have equal
  // buffers, and the label of all of them.
  struct Cut {
    int64_t begin, count;
  };
  struct Cuts {
    std::string label;
    std::vector<Cut> parts;
  };
  Cuts cut(const Call& call);
  struct Sides;
  Sides sides_of(const Call& call, Cut part) const;

  std::shared_ptr<Staging> staging_;
  struct Whole {
    std::string label;
    int64_t parts;
  };
  std::map<std::pair<std::string, mesh::CollectiveOp>, Whole>
      wholes_;  // by the label of their parts
};

}  // namespace smp::device
