#pragma once

#include <optional>
#include <string>
#include <vector>

namespace smp::schedulers {

// The place of this process among those that mpirun or mpiexec has started.
struct MpiRank {
  int rank = 0, size = 1;              // among all
  int local_rank = 0, local_size = 1;  // among those of this host
};

// Of Open MPI (OMPI_COMM_WORLD_*) or MPICH (PMI_*, MPI_LOCAL*). Nothing where neither has started
// this process. Throws ConfigError for values that make no sense.
std::optional<MpiRank> rank_in_mpi(const std::vector<std::string>& environment);

// Takes what they say out of this process's environment, so that the ranks do not take it for
// themselves, and the binding to a core that they give each of their processes.
void clear_mpi_environment();

}  // namespace smp::schedulers
