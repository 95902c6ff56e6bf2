#pragma once

#include <memory>

#include "smp/comm/communicator.h"
#include "smp/comm/fabric_options.h"

namespace smp {

// The communicator of all ranks of a job whose processes run on several hosts: shared memory inside
// a host, libfabric between hosts. The ranks meet over TCP at rank 0. Afterwards rank 0 hears from
// every rank twice a second and tells all of them what it learns: the death of a process or host, a
// cut network, an abort. It starts threads; a process that is forked afterwards may only leave
// alone or destroy what this one holds of the job.
//
// Throws CommError if the ranks cannot meet or were given different options, and std::runtime_error
// without a network or memory.
std::unique_ptr<Communicator> connect_fabric(const FabricOptions& options);

}  // namespace smp
