#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/fabric_transport.h"
#include "net/network_endpoint.h"
#include "smp/comm/communicator.h"
#include "smp/comm/jobs/job_environment.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/comm/net/exchange.h"
#include "waiting/doorbell.h"

// A network between ranks that are threads of one process, which can behave badly.
namespace smp::testing {

// Whether SMP_FABRIC_PROTOCOL says so: tests of the two protocols are the same.
inline bool does_write() { return jobs::read_fabric_protocol() == net::FabricProtocol::kWrite; }

struct NetworkFaults {
  uint64_t seed = 1;
  double refuse = 0;              // how likely "no room now" is
  int delay_polls = 0;            // a message is seen after up to so many polls of its receiver
  bool reorder = false;           // messages overtake each other, those of one sender too
  int at_once = 64;               // completions that one poll reports at most
  int slow_rank = -1;             // it sees something in one poll of fifty
  bool rings = false;             // ranks sleep at doorbells, beside its descriptor
  bool deaf = false;              // then it has no descriptor
  bool wants_own_memory = false;  // it takes messages from memory alone that it knows
  size_t short_bytes = SIZE_MAX;  // of messages that go without a question
  bool writes = does_write();     // pieces are written to their receiver's memory
};

class FakeNetwork {
 public:
  FakeNetwork(int size, NetworkFaults faults);

  std::unique_ptr<net::FabricTransport> transport(int rank);
  int64_t unexpected() const;     // messages for which their receiver had given no receive
  int64_t data_messages() const;  // sent
  int64_t notes() const;          // the same, what is no data
  int64_t refused() const;        // writes that came when their place was no more

  // Where it wants memory of its own: messages that were to go on in other memory, memory of others
  // that it knows now, and bytes that went from there or came there.
  int64_t foreign() const;
  int64_t adopted() const;
  int64_t zero_copy_bytes() const;

  // Nothing passes between this rank and the others any more; sending to it gives an error.
  void cut(int rank);
  // Nothing passes between these two any more, and nothing says so.
  void part(int a, int b);
  // As if this rank were stopped once so many data messages more have left it: nothing passes
  // between it and the others then, and nothing says so.
  void stop_after(int rank, int64_t messages);
  bool is_stopped(int rank) const;
  // What this rank sends straight from its callers' memory never leaves any more.
  void hold(int rank);
  // There is no memory for more messages of this rank, and none can be opened to its peers.
  void fill(int rank);

 private:
  class End;
  struct Message {
    std::vector<std::byte> bytes;
    int from = -1;
    int polls_left = 0;
    net::FabricTransport::RemoteBuffer remote_buffer;
  };
  static constexpr int kMessageClasses = 3;
  struct Inbox {
    std::deque<Message> messages[kMessageClasses];
    std::deque<net::FabricTransport::Transfer*> receives[kMessageClasses];
    std::set<net::FabricTransport::Transfer*>
        refused;  // receives of data that found no room so far
    waiting::Doorbell bell;
  };

  bool has_stopped(int rank) const;  // under the lock

  mutable std::mutex mutex_;
  const NetworkFaults faults_;
  std::mt19937_64 random_;
  std::vector<Inbox> inboxes_;
  std::vector<bool> cut_, stuck_, full_;
  std::set<std::pair<int, int>> parted_;
  std::map<int, int64_t> left_until_stopped_;  // data messages, by rank
  int64_t unexpected_ = 0, refused_ = 0, foreign_ = 0, registered_ = 0, zero_copy_bytes_ = 0;
  int64_t data_messages_ = 0, control_messages_ = 0;
  uint32_t tickets_ = 0;
};

struct HostsOptions {
  std::chrono::milliseconds timeout{60000};
  std::chrono::milliseconds silence{10000};  // of a rank that is asked
  NetworkFaults faults;
  std::function<void(FakeNetwork&)> afterwards;  // with the network as it was left
  std::function<void(const net::NetworkEndpoint::Counts&)>
      counted;                                                 // of each rank, from its own thread
  std::function<std::unique_ptr<net::FabricTransport>()> end;  // of another network, for each rank
  std::vector<int> host_of;               // each rank's host; equal shares when empty
  std::optional<net::Exchange> exchange;  // by what the network costs otherwise
};

// Runs `program` once per rank of `hosts` x `per_host`, each in a thread of its own, as if the
// hosts were apart: each has a shared memory of its own, and between them is a FakeNetwork. As
// run_ranks otherwise: when a rank throws, the calls of all others end.
void run_hosts(int hosts, int per_host, const std::function<void(comm::Communicator&)>& program,
               const HostsOptions& options = {});
void run_hosts(int hosts, int per_host,
               const std::function<void(comm::Communicator&, FakeNetwork&)>& program,
               const HostsOptions& options = {});

}  // namespace smp::testing
