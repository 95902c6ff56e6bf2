#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device_memory.h"
#include "smp/comm/communicator.h"
#include "smp/runtime/memory_ledger.h"
#include "smp/runtime/staged_communicator.h"

namespace smp {

// What all groups of a rank share: the buffers of the host, and the messages that have not started.
class StagedCommunicator::Staging : public std::enable_shared_from_this<Staging> {
 public:
  // Buffers are `owner`'s symmetric memory.
  Staging(DeviceMemory& memory, Communicator& owner) : memory_(memory), owner_(owner) {}
  ~Staging();

  // A piece of a message: on the device, at `offset` in its buffer.
  struct Piece {
    void* device = nullptr;  // null: none
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  using Start = std::function<WorkPtr(std::byte* buffer)>;

  bool holds(const void* data) const { return memory_.holds(data); }
  // Queues a message with a buffer of `bytes`: `in` is copied there, then it starts, then `out`
  // comes from there.
  WorkPtr queue(int64_t bytes, const Piece& in, const Piece& out, Start start);
  void start_due();  // those, in order, whose bytes are here
  void start_all();  // waits for their bytes

 private:
  class Message;
  struct Buffer {
    std::shared_ptr<std::byte[]> memory;
    int64_t bytes = 0;
    MemoryCharge charge;
    CopyPtr leaving;  // the copy to the device that still reads it
    bool is_taken = false;
  };

  Buffer& take(int64_t bytes);

  DeviceMemory& memory_;
  Communicator& owner_;
  std::deque<Buffer> buffers_;  // stay where they are
  std::deque<std::shared_ptr<Message>> queue_;
  std::vector<WorkPtr> dropped_;  // unfinished; they still read and write their buffers
};

}  // namespace smp
