#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/jobfile/job_reader.h"

// Reads what nccl-tests print (all_reduce_perf) into measured points of a cluster file. Strict: a
// line that is not understood is an error with its place. Pure; any thread.
namespace smp::calibration {

struct NcclTable {
  std::string path;    // as errors name it
  std::string source;  // what the cluster file says of it
  int64_t ranks = 0;
  int64_t hosts = 0;
  std::vector<LinkPoint> points;  // out of place, by size; of one size the last
};

// Throws ConfigError: "reduce.txt:14: ...".
NcclTable parse_nccl_tests(const std::string& path, const std::string& text);

// The cluster file with the points of the tables in the place of those it has of the same call by
// as many ranks: tables of one host are intra_host_points, of several inter_host_points. Comments
// and other lines stay. Throws ConfigError when the result is no cluster file, or two tables
// measure the same.
std::string with_link_points(const jobfile::JobSource& cluster,
                             const std::vector<NcclTable>& tables);

// One key of a cluster file, such as inter_host_latency_s, and what was measured for it.
struct LinkConstant {
  std::string key;
  double value = 0;
  std::string source;  // what the cluster file says of it
};

// The cluster file with these constants in the place of those it has. Comments and other lines
// stay. Throws ConfigError when the result is no cluster file.
std::string with_link_constants(const jobfile::JobSource& cluster,
                                const std::vector<LinkConstant>& constants);

// What a cluster file says. Throws ConfigError when it is none.
ClusterSpec read_cluster(const jobfile::JobSource& cluster);

}  // namespace smp::calibration
