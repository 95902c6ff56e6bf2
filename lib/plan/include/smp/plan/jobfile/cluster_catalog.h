#pragma once

#include <span>
#include <string>
#include <string_view>

#include "smp/plan/jobfile/job_reader.h"

// The cluster files of configs/clusters, which are part of the program: a job file says
// `cluster: p5.48xlarge`, a command line --cluster p5.48xlarge, wherever it is run. Pure but for
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

// What --cluster names: a file where there is one of that path, else a known cluster. Throws
// ConfigError for neither.
JobSource cluster_source(const std::string& name_or_path);

}  // namespace smp::jobfile
