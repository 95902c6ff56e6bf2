#include "smp/launcher/schedulers/mpi_rank.h"

#include <doctest/doctest.h>

#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::schedulers;

TEST_CASE("what mpirun says to a process is understood, Open MPI's and MPICH's") {
  const auto open_mpi =
      rank_in_mpi({"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8",
                   "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4"});
  REQUIRE(open_mpi);
  CHECK(open_mpi->rank == 5);
  CHECK(open_mpi->size == 8);
  CHECK(open_mpi->local_rank == 1);
  CHECK(open_mpi->local_size == 4);
  const auto mpich =
      rank_in_mpi({"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"});
  REQUIRE(mpich);
  CHECK(mpich->size == 2);
  CHECK(!rank_in_mpi({"PATH=/bin", "OMPI_COMM_WORLD_RANKS=1"}));
  CHECK_THROWS_WITH_AS(rank_in_mpi({"PMI_RANK=0"}),
                       "PMI_SIZE is not set, but other variables of the same launcher are",
                       ConfigError);
  CHECK_THROWS_WITH_AS(rank_in_mpi({"PMI_RANK=x"}), "PMI_RANK='x': expected a whole number",
                       ConfigError);
  CHECK_THROWS_WITH_AS(
      rank_in_mpi({"PMI_RANK=2", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"}),
      "PMI_RANK=2 of 2, MPI_LOCALRANKID=0 of 2: not a valid rank", ConfigError);
}
