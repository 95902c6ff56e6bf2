#pragma once

#include <memory>

#include "smp/comm/communicator.h"
#include "smp/comm/net/fabric_options.h"

namespace smp::jobs {

// Connects all ranks of a job whose processes run on several hosts, and returns their communicator.
// It uses shared memory inside a host and libfabric between hosts. The ranks rendezvous over TCP at
// rank 0. Afterwards every rank sends rank 0 a heartbeat twice a second. Rank 0 tells all ranks of
// failures: the death of a process or host, a cut network, an abort. It starts threads. A forked
// process may use none of the job's objects; it may only ignore or destroy them.
//
// Throws CommError if the rendezvous fails or the ranks have different options, and
// std::runtime_error without a network or memory.
std::unique_ptr<comm::Communicator> connect_fabric(const net::FabricOptions& options);

}  // namespace smp::jobs
