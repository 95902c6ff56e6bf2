#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/comm/device/device_memory.h"

namespace smp::device {

// The state that all groups of a rank share: the buffers on the host, and the messages that have
// not started.
class Staging : public std::enable_shared_from_this<Staging> {
 public:
  // Allocates the buffers on the host, zeroed.
  using Allocate = std::function<std::shared_ptr<std::byte[]>(int64_t bytes)>;

  Staging(DeviceMemory& memory, Allocate allocate)
      : memory_(memory), allocate_(std::move(allocate)) {}
  ~Staging();

  // A part of a message: `rows` pieces of `bytes`. On the device they are `apart` from each other;
  // in the buffer they lie one after the other from `offset` on.
  struct Piece {
    void* device = nullptr;  // null: none
    int64_t offset = 0;
    int64_t bytes = 0;
    int64_t rows = 1, apart = 0;

    int64_t end() const { return offset + rows * bytes; }  // in the buffer
  };
  static Piece rows(void* device, int64_t offset, int64_t bytes, int64_t count, int64_t apart) {
    if (apart == bytes) return {device, offset, count * bytes};
    return {device, offset, bytes, count, apart};
  }
  using Start = std::function<comm::WorkPtr(std::byte* buffer)>;

  // One call of the communicator: `in` is copied to the buffer, then the call starts, then `out` is
  // copied from there.
  struct Part {
    Piece in, out;
    Start start;
  };

  bool holds(const void* data) const { return memory_.holds(data); }
  // Queues a message with a buffer of `bytes`. While one of its parts is between the ranks, the
  // next one is copied to the host and the one before to the device.
  comm::WorkPtr queue(int64_t bytes, std::vector<Part> parts);
  // Starts the queued messages whose bytes are on the host, in order. Copies to the device what has
  // come from peers, for all messages.
  void advance();
  void start_all();  // waits for their bytes

 private:
  class Message;
  struct Buffer {
    std::shared_ptr<std::byte[]> memory;
    int64_t bytes = 0;  // pinned
    CopyPtr leaving;    // the last copy to the device that still reads it
    bool is_taken = false;
  };

  void start_due();
  Buffer& take(int64_t bytes);
  void unpin(Buffer& buffer);

  DeviceMemory& memory_;
  const Allocate allocate_;
  std::deque<Buffer> buffers_;  // stay where they are
  std::deque<std::shared_ptr<Message>> queue_;
  std::vector<Message*> under_way_;     // until their results are asked for
  std::vector<comm::WorkPtr> dropped_;  // unfinished; they still read and write their buffers
};

}  // namespace smp::device
