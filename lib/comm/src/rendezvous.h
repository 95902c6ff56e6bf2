#pragma once

#include <vector>

#include "descriptor.h"
#include "mapping.h"
#include "smp/comm/shared_memory.h"

namespace smp::shm {

// What a process has once all ranks have come together.
struct Meeting {
  Mapping mapping;
  std::vector<Descriptor> peers;  // a socket to each other rank; an end of file tells its end
};

// Rank r listens at its own name, connects to all lower ranks and is found by all higher ones. Each
// side checks the other's user and proves that it knows the job's key; rank 0 hands the memfd out.
// Throws CommError naming who is missing or does not belong.
Meeting meet(const SharedMemoryOptions& options);

}  // namespace smp::shm
