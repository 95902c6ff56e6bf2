#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/files/file_identity.h"

namespace smp::training {

// A value that must be the same on every rank of a job; otherwise training gives a wrong result
// without an error. Example: {"a.txt", "18000 bytes (...)"}.
struct AgreedValue {
  std::string name, value;
};

// Adds the identities of files that belong to `what`, a key of the job.
void add_files(std::vector<AgreedValue>& held, std::string_view what,
               const std::vector<files::FileIdentity>& files);

// Collective over `world`. Returns if all ranks hold equal values. Otherwise throws the same
// ConfigError on every rank: it names the ranks and hosts that differ from the majority, and how.
// `host`: this rank's host, as the user named it; empty: a single host.
void check_ranks_agree(comm::Communicator& world, const std::string& host,
                       const std::vector<AgreedValue>& held, std::string_view label);

}  // namespace smp::training
