#pragma once

#include <vector>

#include "bootstrap/participant.h"
#include "segment/mapping.h"
#include "smp/plan/system/file_descriptor.h"
#include "waiting/doorbell.h"

namespace smp::bootstrap {

// The result of the rendezvous of the ranks of one host.
struct ShmRendezvous {
  segment::Mapping mapping;
  // A socket to each other rank on this host, by rank of the job. Its end of file is the rank's
  // end.
  std::vector<system::FileDescriptor> peers;
  std::vector<waiting::Doorbell> doorbells;  // of the ranks on this host, if they have any
};

// Connects the ranks `here`, in ascending order, by Unix sockets. Each rank listens at a name of
// its own, connects to all lower ranks and accepts all higher ones. Each side checks the other's
// user and authenticates with the job's key. The lowest rank hands out the memfd. `with_doorbells`:
// each rank gives its doorbell to all others. Throws CommError that names who is missing or does
// not belong to the job.
ShmRendezvous shm_rendezvous(const Participant& self, const std::vector<int>& here,
                             bool with_doorbells);

// The process ids of the peers that this process can see.
std::vector<int> processes_of(const std::vector<system::FileDescriptor>& peers);

}  // namespace smp::bootstrap
