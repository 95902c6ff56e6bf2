#include "layout/reduction_pace.h"

#include <algorithm>

#include "smp/plan/base/dtype.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/model/model_flops.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {
namespace {

constexpr int64_t kWithoutRates = 2;
constexpr double kShareOfRates = 0.5;
constexpr double kMost = 1024;  // then a second half starts after the next layer

// Two thirds of a step's flops are the backward's.
double backward_s(const Plan& plan) {
  const JobSpec& job = plan.job;
  const double rate = model::peak_flops_per_s(job.cluster, job.training.precision.value()) *
                      job.cluster.matmul_efficiency;
  if (!(rate > 0) || model::is_list(job.model)) return 0;
  const auto samples = static_cast<double>(job.training.micro_batch.value());
  return model::model_flops(job, samples) * 2 / 3 /
         static_cast<double>(plan.degrees.tensor * plan.degrees.context) / rate;
}

double reduction_s(const Plan& plan, int64_t elements) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  const bool on_host = grid_of(plan, mesh.group(0, mesh::Axis::kShard)).hosts == 1;
  const double rate =
      on_host ? plan.job.cluster.intra_host_bytes_per_s : plan.job.cluster.inter_host_bytes_per_s;
  if (!(rate > 0)) return 0;
  const auto ranks = static_cast<double>(state_share(plan).shards);
  const auto bytes = static_cast<double>(elements * bytes_of(wide(compute_dtype(plan))));
  return (ranks - 1) / ranks * bytes / rate;
}

}  // namespace

int64_t reduced_per_computed(const Plan& plan, int64_t elements) {
  const double computing_s = backward_s(plan), reducing_s = reduction_s(plan, elements);
  if (computing_s == 0 || reducing_s == 0) return kWithoutRates;
  const double pace = std::min(kShareOfRates * computing_s / reducing_s, kMost);
  // Who waits for a reduction in a pipeline delays the gradient that the stage before waits for.
  if (pace < 1 && plan.degrees.pipeline > 1) return 0;
  return static_cast<int64_t>(std::max(pace, 1.0));
}

}  // namespace smp::layout
