#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "doorbell.h"

namespace smp::shm {

// Messages between the ranks of a job on different hosts: the door to the network. Connectionless
// and reliable; messages of one rank to another may overtake each other. Nothing blocks and there
// is no thread: a message moves when somebody polls. Used by one thread at a time.
class Transport {
 public:
  // Memory that messages are sent from and received into.
  class Memory {
   public:
    virtual ~Memory() = default;
    virtual std::byte* data() const = 0;
  };

  // What a message is received for; each has receives of its own.
  enum class Box { kData, kNotes };

  // One message on its way, or one receive that waits for a message. Stays where it is until it is
  // complete; then `error` is empty or says what went wrong.
  struct Transfer {
    void* reserved[8] = {};  // the provider's
    Memory* memory = nullptr;
    size_t at = 0, bytes = 0;  // of memory; after a receive, the bytes that came
    int peer = -1;             // global rank to which it is sent; -1 for a receive
    Box box = Box::kData;
    std::string error;

    std::byte* data() const { return memory->data() + at; }
  };

  virtual ~Transport() = default;

  virtual std::string address() const = 0;  // bytes that tell peers where to send
  // The addresses of all ranks; where one is empty nothing is sent.
  virtual void set_peers(const std::vector<std::string>& addresses) = 0;
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;

  // False when there is no room now: to be tried again after a poll.
  virtual bool send(Transfer& transfer) = 0;
  virtual bool receive(Transfer& transfer) = 0;

  // Appends what has been completed since.
  virtual void poll(std::vector<Transfer*>& complete) = 0;

  virtual int where_to_sleep() { return kNoDescriptor; }  // as Mover's
};

}  // namespace smp::shm
