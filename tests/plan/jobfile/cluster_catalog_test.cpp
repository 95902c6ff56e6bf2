#include "smp/plan/jobfile/cluster_catalog.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"

using namespace smp;
using namespace smp::jobfile;

namespace {

const std::string kModel =
    "model:\n  num_layers: 4\n  hidden_size: 128\n  num_heads: 4\n  vocab_size: 256\n";

std::string error_of(const std::string& text) {
  try {
    read_job({{"job.yaml", text}});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every known cluster reads, under its own name, with the rates that time needs") {
  CHECK(named_clusters().size() >= 18);
  std::string_view before;
  for (const NamedCluster& known : named_clusters()) {
    CAPTURE(known.name);
    CHECK(before < known.name);
    before = known.name;
    const JobSpec job = read_job({{"job.yaml", kModel}, cluster_source(std::string(known.name))});
    const ClusterSpec& cluster = job.cluster;
    CHECK(cluster.name == known.name);
    CHECK(cluster.memory_per_process_bytes > 0);
    CHECK(cluster.memory_bytes_per_s > 0);
    CHECK(cluster.intra_host_bytes_per_s > 0);
    if (cluster.device != DeviceKind::kCuda) continue;
    CHECK(cluster.half_flops_per_s > cluster.fp32_flops_per_s);
    CHECK(cluster.multiprocessors > 0);
    CHECK(cluster.kernel_launch_s > 0);
    CHECK(cluster.collective_multiprocessors > 0);
    CHECK(cluster.inter_host_bytes_per_s < cluster.intra_host_bytes_per_s);
    CHECK(cluster.host_memory_bytes > cluster.processes_per_host * int64_t{4} << 30);
  }
}

TEST_CASE("a job file may name its cluster, and a command line may set its keys") {
  const JobSpec job =
      read_job({{"job.yaml", kModel + "cluster: p5.48xlarge\n"}}, {"cluster.hosts=16"});
  CHECK(job.cluster.name == "p5.48xlarge");
  CHECK(job.cluster.processes_per_host == 8);
  CHECK(job.cluster.hosts == 16);
}

TEST_CASE("an unknown cluster is refused with the nearest one and all") {
  CHECK(error_of(kModel + "cluster: p5.48xlage\n")
            .find("job.yaml:6:10: unknown cluster 'p5.48xlage', did you mean 'p5.48xlarge'? Known "
                  "clusters: a100-pcie-8x, a800-8x, cpu-4, ") == 0);
  CHECK(unknown_cluster("p5").find("unknown cluster 'p5', did you mean 'p5.48xlarge'? ") == 0);
  CHECK(unknown_cluster("p4dx").find("unknown cluster 'p4dx', did you mean 'p4d.24xlarge'? ") == 0);
  CHECK(unknown_cluster("tpu").find("unknown cluster 'tpu'. Known clusters: a100-pcie-8x, ") == 0);
  CHECK_THROWS_WITH_AS(cluster_source("none/here.yaml"), "none/here.yaml: no such file",
                       ConfigError);
  CHECK_THROWS_AS(cluster_source("dgx"), ConfigError);
}

TEST_CASE("a user's file goes before a known name") {
  const std::string path =
      (std::filesystem::temp_directory_path() / "smp-cluster-test.yaml").string();
  std::ofstream(path) << "cluster:\n  name: mine\n";
  CHECK(cluster_source(path).text == "cluster:\n  name: mine\n");
  std::remove(path.c_str());
}
