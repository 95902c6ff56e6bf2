#pragma once

#include <vector>

#include "descriptor.h"
#include "mapping.h"
#include "smp/comm/shared_memory.h"

namespace smp::shm {

// What a process has once all ranks have come together.
struct Meeting {
  Mapping mapping;
  // A socket to each other rank on this host, by rank of the job; an end of file tells its end.
  std::vector<Descriptor> peers;
};

// Of the ranks `here`, in ascending order, each listens at its own name, connects to all lower ones
// and is found by all higher ones. Each side checks the other's user and proves that it knows the
// job's key; the lowest hands the memfd out. Throws CommError naming who is missing or does not
// belong.
Meeting meet(const SharedMemoryOptions& options, const std::vector<int>& here);

}  // namespace smp::shm
