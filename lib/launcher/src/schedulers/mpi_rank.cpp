#include "smp/launcher/schedulers/mpi_rank.h"

#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>

#include <array>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/environment/variables.h"
#include "smp/plan/base/errors.h"

namespace smp::schedulers {
namespace {

struct MpiNames {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr std::array<MpiNames, 2> kMpi = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
}};
constexpr std::array kOfMpi = {"OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL", "HYDI_", "HYDRA_"};

}  // namespace

std::optional<MpiRank> rank_in_mpi(const std::vector<std::string>& environment) {
  for (const MpiNames& names : kMpi) {
    if (!environment::value_in(environment, names.rank)) continue;
    const MpiRank outer{environment::number_in(environment, names.rank, 0),
                        environment::number_in(environment, names.size, 1),
                        environment::number_in(environment, names.local_rank, 0),
                        environment::number_in(environment, names.local_size, 1)};
    if (outer.rank >= outer.size || outer.local_rank >= outer.local_size)
      throw ConfigError(fmt::format("{}={} of {}, {}={} of {}: not a valid rank", names.rank,
                                    outer.rank, outer.size, names.local_rank, outer.local_rank,
                                    outer.local_size));
    return outer;
  }
  return std::nullopt;
}

void clear_mpi_environment() {
  for (const std::string& variable : environment::own_environment()) {
    for (const char* prefix : kOfMpi) {
      if (variable.starts_with(prefix)) unsetenv(variable.substr(0, variable.find('=')).c_str());
    }
  }
  // The kernel takes out what this process may not run on.
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  sched_setaffinity(0, sizeof all, &all);
}

}  // namespace smp::schedulers
