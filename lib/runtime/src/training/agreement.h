#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/files/file_identity.h"

namespace smp::training {

// Something that every rank of a job must hold alike, or it trains to a wrong result without an
// error: {"a.txt", "18000 bytes (...)"}.
struct HeldAlike {
  std::string name, value;
};

// The same of files, which are said to belong to `what`, a key of the job.
void add_files(std::vector<HeldAlike>& held, std::string_view what,
               const std::vector<files::FileIdentity>& files);

// A call of all ranks. Returns where all hold the same. Else throws the same ConfigError on every
// rank: which ranks, on which hosts, hold what others do not. What most ranks hold is what the
// others are compared with. `host`: of this rank, as the user named it; empty: there is one.
void check_held_alike(comm::Communicator& world, const std::string& host,
                      const std::vector<HeldAlike>& held, std::string_view label);

}  // namespace smp::training
