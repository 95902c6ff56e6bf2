#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/mesh/mesh.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::environment {

// A TCP port of this host that nobody else is given while this object lives, and nobody else can
// bind. While it is lent, whoever sets SO_REUSEADDR can, as torch's TCPStore does, and the first to
// listen has it: Linux does not tell a rank from a stranger there.
class ReservedPort {
 public:
  ReservedPort();  // throws std::system_error when there is none
  int number() const { return number_; }
  void lend(bool lent) const;

 private:
  system::FileDescriptor socket_;
  int number_ = 0;
};

// What the ranks of one job share.
struct JobVariables {
  int world_size = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string job_id;   // 16 hex digits
  std::string job_key;  // 64 hex digits, secret
  std::string plan;     // path; empty = none
  std::string run_dir;  // empty = none
  std::string resume;   // "latest" or a step; empty = start anew
  int hosts = 1;
  std::string host_names;  // "a,b", in order; empty: not said
  int restarts = 0;        // made so far
  int max_restarts = 0;
};

struct SageMakerHost {
  std::string hosts;    // of the job: ["algo-1","algo-2"]
  std::string current;  // this one
  std::string gpus;     // how many it has
};

// Where a rank runs.
struct RankPlace {
  int host = 0;
  int local_rank = 0;
  int local_world_size = 1;
  int cpus = 1;                               // of its host, that the ranks may use
  std::vector<int> gpus{};                    // of its host, that they are to use; empty: all
  std::optional<std::string> visible_gpus{};  // for CUDA_VISIBLE_DEVICES; none: not set
  std::optional<mesh::Coord> coordinates{};   // of a plan's rank
  // What SageMaker says of the rank's host; none: nobody asked for it.
  std::optional<SageMakerHost> sagemaker{};
};

// As CUDA's runtime reads it.
inline constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";

// CPUs that this process may run on.
int available_cpus();

// Ranks in order, host after host; cpus and gpus are left to the caller.
std::vector<RankPlace> places_on(const std::vector<int>& slots_of_hosts);

// The variables that smp-launch sets for a rank, "NAME=value": those of torchrun, our SMP_*, and
// the GPUs that it is to see. SageMaker's are set if they are asked for. OMP_NUM_THREADS is max(1,
// cpus / ranks of the host) unless `inherited` has it. `error_file` may be empty.
std::vector<std::string> variables_of_rank(const JobVariables& job, const RankPlace& place,
                                           int rank, const std::string& error_file,
                                           const std::vector<std::string>& inherited);

// SM_HOSTS, SM_CURRENT_HOST and SM_NUM_GPUS.
bool is_of_sagemaker(std::string_view name);

// Whether smp-launch sets the variable itself for every rank, whatever anybody else says.
bool is_set_by_launcher(std::string_view name);

// `inherited` with `set` in place of variables of the same names. Those of ours that are not set
// (left over from an outer smp-launch) are taken out.
std::vector<std::string> merged_environment(const std::vector<std::string>& inherited,
                                            const std::vector<std::string>& set);

// "a,b"; empty for more than 100 KiB, for a variable may not be much longer (128 KiB).
std::string host_names_of(const std::vector<std::string>& hosts);

// The environment of this process.
std::vector<std::string> own_environment();

}  // namespace smp::environment
