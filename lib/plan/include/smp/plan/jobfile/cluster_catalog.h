#pragma once

#include <span>
#include <string>
#include <string_view>

#include "smp/plan/jobfile/job_source.h"

// The cluster files of configs/clusters, which are compiled into the program. A job file says
// `cluster: p5.48xlarge` and a command line --cluster p5.48xlarge, in any folder. Pure except
// cluster_source(); any thread.
namespace smp::jobfile {

struct NamedCluster {
  std::string_view name;
  std::string_view text;  // the file, as it lies in configs/clusters
};

// Sorted by name.
std::span<const NamedCluster> named_clusters();
// Null when there is none of that name.
const NamedCluster* find_cluster(std::string_view name);
// "unknown cluster 'p5', did you mean 'p5en.48xlarge'? There are a100-pcie-8x, ..."
std::string unknown_cluster(std::string_view name);

// The source that --cluster names: a file if there is one with that path, else a known cluster.
// Throws ConfigError if it is neither.
JobSource cluster_source(const std::string& name_or_path);

}  // namespace smp::jobfile
