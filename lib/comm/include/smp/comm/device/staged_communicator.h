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
class Staging;  // of all groups of the rank

// A communicator that passes calls on to another one. Data in a device's memory is staged: it goes
// through buffers in the host's memory.
//
//   device   in ----.                        .---> out      computing goes on beside both copies
//                    \ copy                 / copy
//   host              buffer --message--> buffer            symmetric memory of the communicator
//
// Long messages go in parts. While one part is between the ranks, the next comes from the device
// and the one before goes there. All ranks cut alike, so a call must use device memory on all ranks
// or on none. The parts' label names the whole call, so that parts of different calls cannot match.
//
// A call returns at once. Its message starts when its bytes are on the host, in the order of the
// calls of all groups of the rank. A rank may wait for a message only after the messages before it
// have started. A call is done when the device's later work sees the result. A wait starts all
// messages that are due and starts the copies of those that are complete; it waits only for its
// own. Host memory is not staged; its messages keep their place in the order of calls.
//
// Thread rule of the Communicator behind it; all groups of a rank on one thread.
class StagedCommunicator final : public comm::WrappedCommunicator {
 public:
  // Allocates the buffers on the host, zeroed.
  using Allocate = std::function<std::shared_ptr<std::byte[]>(int64_t bytes)>;

  // Both outlive this object, its split groups and all of their Works. Buffers are symmetric memory
  // of `inner`, or come from `allocate`.
  StagedCommunicator(comm::Communicator& inner, DeviceMemory& memory, Allocate allocate = {});
  ~StagedCommunicator() override;

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override;
  // Calls that have not started keep the time-out of the moment when they were made.
  void set_timeout(std::chrono::milliseconds timeout) override;
  // A call that was made in parts counts once.
  std::vector<comm::TrafficCount> traffic() const override;

 private:
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
