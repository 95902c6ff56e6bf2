#pragma once

#include <vector>

#include "bootstrap/handshake.h"
#include "segment/mapping.h"
#include "waiting/descriptor.h"
#include "waiting/doorbell.h"

namespace smp::bootstrap {

// What a process has once all ranks have come together.
struct Meeting {
  segment::Mapping mapping;
  // A socket to each other rank on this host, by rank of the job; an end of file tells its end.
  std::vector<waiting::Descriptor> peers;
  std::vector<waiting::Doorbell> doorbells;  // of the ranks on this host, if they have any
};

// Of the ranks `here`, in ascending order, each listens at its own name, connects to all lower ones
// and is found by all higher ones. Each side checks the other's user and proves that it knows the
// job's key; the lowest hands the memfd out. `with_doorbells`: each gives its own to all others.
// Throws CommError naming who is missing or does not belong.
Meeting meet(const Participant& self, const std::vector<int>& here, bool with_doorbells);

// Their process ids, of those that this process can see.
std::vector<int> processes_of(const std::vector<waiting::Descriptor>& peers);

}  // namespace smp::bootstrap
