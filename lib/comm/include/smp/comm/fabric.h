#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "smp/comm/communicator.h"
#include "smp/comm/exchange.h"

namespace smp {

// How what is longer than a message goes from a sender's memory to its receiver's: as a tagged
// message for which the receiver has posted a receive, or by the sender, who writes to memory that
// the receiver has opened for it (RMA).
enum class FabricProtocol { kTagged, kWrite };
std::string_view name_of(FabricProtocol protocol);  // "tagged", "write"

struct FabricOptions {
  int rank = 0;
  int size = 1;
  std::string job_id;   // public name of the job, at most 64 characters
  std::string job_key;  // its secret; the ranks prove to each other that they know it
  std::chrono::milliseconds timeout{300000};  // of coming together, and of every collective
  std::optional<std::chrono::milliseconds> meeting_timeout;  // another one of coming together

  // Where rank 0 waits for the others. Port 0, of rank 0 alone: one that is free on its host.
  std::string master_address;
  int master_port = 0;
  std::function<void(int port)> listening;  // told by rank 0 once it waits there

  std::string provider;  // of libfabric; the first that works when empty
  std::optional<FabricProtocol>
      protocol;           // the same on all ranks; the provider's faster one if none
  std::string subnet;     // "10.0.0.0/16": the network to use; the one of master_address when empty
  ExchangeRule exchange;  // the same on all ranks
  int threads = 0;        // that make this rank's long calls; 0 = one, until it lends its CPUs

  // A rank that is silent for so long is given up, and the job with it.
  std::chrono::milliseconds silence{3000};
  int local_rank = 0;  // among those of its host, which share its network cards
  // What makes two ranks share a host; found out when empty. Tests make several hosts of one.
  std::string host_identity;
  // Told one line: over which provider and interface this rank talks, and why.
  std::function<void(const std::string&)> report;
};

// Equal for processes that can share memory: one kernel, one network namespace. Throws
// std::runtime_error without /proc.
std::string own_host_identity();

// The numeric address from which this host reaches that one; nothing is sent. Throws
// std::runtime_error that names the address.
std::string local_address_towards(const std::string& address, int port);

// The communicator of all ranks of a job whose processes run on several hosts: shared memory inside
// a host, libfabric between hosts. They meet over TCP at rank 0, which afterwards hears every rank
// twice a second and tells all of them what it hears: the death of a process or host, a cut
// network, an abort. Threads other than the caller's are started; a process that is forked
// afterwards may only leave alone or destroy what this one holds of the job.
//
// Throws CommError when the ranks cannot come together or were told different things, and
// std::runtime_error without a network or memory.
std::unique_ptr<Communicator> connect_fabric(const FabricOptions& options);

}  // namespace smp
