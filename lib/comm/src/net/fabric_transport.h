#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "waiting/doorbell.h"

namespace smp::net {

// The interface to a network between hosts: messages between the ranks of a job. Connectionless and
// reliable; messages from one rank to another may overtake each other. Nothing blocks and there is
// no thread: messages move when poll() is called. Used by one thread at a time.
class FabricTransport {
 public:
  // Memory registered with the network, for sends and receives.
  class Memory {
   public:
    virtual ~Memory() = default;
    virtual std::byte* data() const = 0;
  };

  // The class of a message; each class has receives of its own. A zero-copy message goes to the
  // remote buffer of one receive, which its receiver has told to the sender.
  enum class MessageClass { kData, kControl, kZeroCopy };

  // The name of a zero-copy receive: a tag; or the address of its memory, the key that gives
  // access, and the immediate data (ticket) that comes with a write.
  struct RemoteBuffer {
    uint64_t address = 0, key = 0;
    uint32_t ticket = 0;
  };

  // A send or a posted receive. It stays at its address until it is complete; then `error` is empty
  // or says what went wrong.
  struct Transfer {
    void* reserved[8] = {};  // the provider's
    Memory* memory = nullptr;
    size_t at = 0, bytes = 0;  // of memory; after a receive: all received bytes
    // Memory in which the message continues. It may be unregistered only if takes_any_memory().
    std::byte* rest = nullptr;
    size_t rest_bytes = 0;
    Memory* rest_memory = nullptr;  // in which `rest` lies; null: unregistered
    int peer = -1;                  // global rank to which it is sent; -1 for a receive
    MessageClass message_class = MessageClass::kData;
    RemoteBuffer remote_buffer;  // of kZeroCopy
    std::string error;

    std::byte* data() const { return memory->data() + at; }
  };

  virtual ~FabricTransport() = default;

  virtual std::string address() const = 0;  // the address for peers, as bytes
  // Sets the addresses of all ranks. Nothing is sent to a rank with an empty address.
  virtual void set_peers(const std::vector<std::string>& addresses) = 0;
  // Throws std::bad_alloc, or std::runtime_error if the network cannot register this many bytes.
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  // Registers memory of another owner. Messages may continue there while the result lives. Null if
  // the network cannot use such memory. Throws std::runtime_error if the registration fails.
  virtual std::unique_ptr<Memory> adopt(std::byte* begin, size_t bytes) = 0;

  // Makes the remote buffer of a zero-copy receive, whose memory is `rest`; call it before
  // receive(). `secret` cannot be guessed and is different for each. Failures are in the receive's
  // error. With writes() that is all: the receive is complete when a peer has written.
  virtual void expose(Transfer& receive, uint64_t secret) = 0;

  // Starts a transfer. False if there is no room now; try again after a poll.
  virtual bool send(Transfer& transfer) = 0;
  virtual bool receive(Transfer& transfer) = 0;

  // Whether messages may continue in unregistered memory. The same on all ranks.
  virtual bool takes_any_memory() const = 0;
  // A longer message may make the provider ask the receiver first (its own rendezvous protocol).
  virtual size_t short_bytes() const { return SIZE_MAX; }
  // Whether zero-copy messages are RMA writes, for which no receive is posted.
  virtual bool writes() const = 0;
  // Ends a receive that no message has begun to fill, with an error. A receive that is being filled
  // continues. For a receive by RMA writes this is unknown: its remote buffer becomes invalid, and
  // the receive ends.
  virtual void cancel(Transfer& receive) = 0;
  // Closes this rank's network. Transfers under way never complete, and touch no memory after the
  // return. Later sends and receives end with an error.
  virtual void close() = 0;

  // Appends the transfers that have completed since the last poll.
  virtual void poll(std::vector<Transfer*>& complete) = 0;

  virtual int wait_descriptor() { return waiting::kNoDescriptor; }  // as NetworkProgress's
};

}  // namespace smp::net
