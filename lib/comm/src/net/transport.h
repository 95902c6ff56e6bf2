#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "waiting/doorbell.h"

namespace smp::net {

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

  // What a message is received for; each has receives of its own. One of kStraight goes to the
  // place of one receive, which tells it to the sender.
  enum class Box { kData, kNotes, kStraight };

  // What a receive of kStraight is known by: a tag, or where its memory is, the key that opens it
  // and what its receiver's network says when it has been written to.
  struct Place {
    uint64_t address = 0, key = 0;
    uint32_t ticket = 0;
  };

  // One message on its way, or one receive that waits for a message. Stays where it is until it is
  // complete; then `error` is empty or says what went wrong.
  struct Transfer {
    void* reserved[8] = {};  // the provider's
    Memory* memory = nullptr;
    size_t at = 0, bytes = 0;  // of memory; after a receive, all bytes that came
    // Memory in which the message goes on: anybody's only where the transport takes any.
    std::byte* rest = nullptr;
    size_t rest_bytes = 0;
    Memory* rest_memory = nullptr;  // in which `rest` lies, unless it is anybody's
    int peer = -1;                  // global rank to which it is sent; -1 for a receive
    Box box = Box::kData;
    Place place;  // of kStraight
    std::string error;

    std::byte* data() const { return memory->data() + at; }
  };

  virtual ~Transport() = default;

  virtual std::string address() const = 0;  // bytes that tell peers where to send
  // The addresses of all ranks; where one is empty nothing is sent.
  virtual void set_peers(const std::vector<std::string>& addresses) = 0;
  // Throws std::bad_alloc, or std::runtime_error where the network refuses so much.
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  // Somebody else's memory, in which messages may go on as long as this lives, where they may not
  // in any. Null where they cannot even so. Throws std::runtime_error where the network refuses.
  virtual std::unique_ptr<Memory> adopt(std::byte* begin, size_t bytes) = 0;

  // Before a receive of kStraight, whose memory is `rest`: makes its place. `secret`, which nobody
  // can guess, is different for each. What goes wrong is in its error. Where senders write that is
  // all: it is complete when one has.
  virtual void expose(Transfer& receive, uint64_t secret) = 0;

  // False when there is no room now: to be tried again after a poll.
  virtual bool send(Transfer& transfer) = 0;
  virtual bool receive(Transfer& transfer) = 0;

  // Whether messages may go on in memory that this has not allocated; alike on all ranks.
  virtual bool takes_any_memory() const = 0;
  // A message of more bytes may cost the provider a question of its own to the receiver's.
  virtual size_t short_bytes() const { return SIZE_MAX; }
  // Whether what is of kStraight is written by its sender, who needs no receive to be posted.
  virtual bool writes() const = 0;
  // A receive that no message has begun to fill shall end with an error. One that has goes on. Of
  // one that is written to nobody knows whether it has: its place is no more, and it has ended.
  virtual void cancel(Transfer& receive) = 0;
  // Ends the network of this rank: what was under way is never complete, and touches no memory any
  // more when this returns. What is sent and received afterwards ends with an error.
  virtual void close() = 0;

  // Appends what has been completed since.
  virtual void poll(std::vector<Transfer*>& complete) = 0;

  virtual int where_to_sleep() { return waiting::kNoDescriptor; }  // as Mover's
};

}  // namespace smp::net
