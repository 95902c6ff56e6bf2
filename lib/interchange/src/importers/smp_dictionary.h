#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "importers/foreign_keys.h"

// The structure that the dictionaries of SMP v1 and v2 share. Pure.
namespace smp::importers {

// v1 or v2, by the keys that only one of them has. Throws ConfigError if this is unclear.
ForeignFormat smp_version(const text::YamlNode& root, const std::string& path);

// The map of parameters: the document itself, or the map under smdistributed.modelparallel or
// modelparallel (the `distribution` of the SageMaker SDK). nullptr, and a report, if it is missing
// or not enabled, or has siblings with another meaning.
const text::YamlNode* smp_parameters(const text::YamlNode& root, text::Diagnostics& diagnostics,
                                     Imported& out);

// mpi.processes_per_host, if it stands beside the parameters.
std::optional<int64_t> smp_processes_per_host(const text::YamlNode& root,
                                              text::Diagnostics& diagnostics, Imported& out);

// The parameters without the keys of the other version, which are reported as such.
text::YamlNode refuse_other_version(const text::YamlNode& parameters,
                                    const std::vector<ForeignKey>& own,
                                    const std::vector<ForeignKey>& other,
                                    std::string_view other_name, text::Diagnostics& diagnostics);

// Notes that the job is priced as this engine's, which can run it, and how to price it as SMP's
// own.
void note_framework(ForeignReader& reader, std::string_view framework);

// Sets `sharding` over all data-parallel ranks, with their number if the world is known, else with
// a note. Parameters are offloaded by shards, even where one rank has all of them.
void set_shard_over_all(ForeignReader& reader, std::string_view sharding,
                        const ImportContext& context, int64_t context_degree, int64_t tensor_degree,
                        int64_t pipeline_degree, std::string_view origin,
                        std::optional<int64_t> processes_per_host = {},
                        bool offloads_parameters = false);

}  // namespace smp::importers
