#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "smp/comm/communicator.h"
#include "smp/comm/jobs/fabric.h"
#include "smp/comm/net/exchange.h"

namespace smp::pytorch {

// The environment variables of the rendezvous; see smp/plan/env/environment.h.
struct RendezvousEnvironment {
  std::string master_address, fabric_provider, fabric_subnet, host_identity;
  std::optional<net::FabricProtocol> fabric_protocol;
  net::ExchangeRule exchange;
  int threads = 0;

  static RendezvousEnvironment read();
};

// Connects the ranks of one process group and returns their communicator. They rendezvous through
// torch's store: rank 0 of the group draws the name and the key of a job of its own and writes them
// there, and each rank writes its host. So a group has its own time-out, and fails alone. A process
// that can read the store can learn the key: the store is as private as its network.
//
// Collective over the group. Throws c10::DistBackendError naming the ranks that did not come in
// time.
std::unique_ptr<comm::Communicator> rendezvous(const c10d::DistributedBackendOptions& group,
                                               const RendezvousEnvironment& environment);

// The address at which other hosts reach this one; the loopback address where there is no
// MASTER_ADDR.
std::string own_address(const RendezvousEnvironment& environment);

// "process group 3 (its ranks 0, 1 are 4, 5 of the job)", for errors.
std::string place_of(const c10d::DistributedBackendOptions& group);

std::chrono::milliseconds timeout_of(const c10d::DistributedBackendOptions& group);

}  // namespace smp::pytorch
