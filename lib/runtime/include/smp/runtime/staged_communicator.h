#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "smp/comm/wrapped_communicator.h"

namespace smp {

class DeviceMemory;

// Passes everything on to another Communicator, and what lies in a device's memory by way of the
// host's:
//
//   device   in ----.                        .---> out      computing goes on beside both copies
//                    \ copy                 / copy
//   host              buffer --message--> buffer            symmetric memory of the communicator
//
// A call returns at once: its message starts when its bytes are here, in the order of the calls of
// all groups of the rank, since a rank may wait for one of them only when those before it have
// started. It is done when its result is in place for what the device is asked to compute next.
// Waiting starts all that is due, and finishes nothing else. Memory of the host goes straight
// through, behind what was called before.
//
// Thread rule of the Communicator behind it; all groups of a rank on one thread.
class StagedCommunicator final : public WrappedCommunicator {
 public:
  // Both outlive this object, what is split off it, and all of their Works.
  StagedCommunicator(Communicator& inner, DeviceMemory& memory);
  ~StagedCommunicator() override;

  WorkPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                     std::string_view label) override;
  WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                     std::string_view label) override;
  WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         std::string_view label) override;
  WorkPtr broadcast(void* buffer, int64_t count, DType dtype, int root,
                    std::string_view label) override;
  WorkPtr reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op, int root,
                 std::string_view label) override;
  WorkPtr gather(const void* in, void* out, int64_t count, DType dtype, int root,
                 std::string_view label) override;
  WorkPtr scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                  std::string_view label) override;
  WorkPtr all_to_all(const void* in, void* out, int64_t count, DType dtype,
                     std::string_view label) override;
  WorkPtr send(const void* in, int64_t count, DType dtype, int peer,
               std::string_view label) override;
  WorkPtr recv(void* out, int64_t count, DType dtype, int peer, std::string_view label) override;
  WorkPtr barrier(std::string_view label) override;
  std::unique_ptr<Communicator> split(const std::vector<int>& members) override;

 private:
  class Staging;  // of all groups of the rank
  StagedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Staging> staging);

  std::shared_ptr<Staging> staging_;
};

}  // namespace smp
