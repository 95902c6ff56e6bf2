#include "time/gradient_messages.h"

#include "cost/rank_order.h"
#include "cost/state_bytes.h"
#include "links/link_model.h"
#include "smp/plan/framework/framework_catalog.h"

namespace smp::time {

double gradient_width(const JobSpec& job, const choice::LayoutChoice& choice) {
  const double element = cost::element_bytes(choice.precision);
  if (element > 2) return element;
  const framework::FrameworkModel& framework = framework::framework_model(job);
  const bool fp32 = choice.precision == Precision::kFp16 ? framework.fp32_gradients_with_fp16
                                                         : framework.fp32_gradients_with_bf16;
  // Sums that lie beside 16-bit gradients are not what is sent.
  const bool beside = choice.precision == Precision::kBf16 && framework.fp32_sum_beside_gradients;
  return !beside && job.training.accumulate_gradients_in_fp32.value_or(fp32) ? 4 : 2;
}

mesh::Axis sums_over(const JobSpec& job, const choice::LayoutChoice& choice) {
  return cost::state_ranks(job, choice).shards == 1 ? mesh::Axis::kData : mesh::Axis::kReplica;
}

ReductionSeconds reduction_s(const JobSpec& job, const choice::LayoutChoice& choice,
                             double elements, double calls) {
  const double bytes = elements * gradient_width(job, choice) / calls;
  const bool everywhere = framework::framework_model(job).reduces_everywhere;
  const auto shards = static_cast<double>(cost::state_ranks(job, choice).shards);
  if (shards == 1 || everywhere) {
    return {0, calls * all_reduce_s(bytes, cost::data_placement(choice, job), job.cluster,
                                    links::exchange_of(job, sums_over(job, choice)))};
  }
  const double inside =
      links::reduce_scatter_s(bytes, cost::shard_placement(choice, job), job.cluster,
                              links::exchange_of(job, mesh::Axis::kShard));
  const double across = all_reduce_s(bytes / shards, cost::replica_placement(choice, job),
                                     job.cluster, links::exchange_of(job, mesh::Axis::kReplica));
  return {calls * inside, calls * across};
}

double gather_s(const JobSpec& job, const choice::LayoutChoice& choice, double elements,
                double width, double calls) {
  return calls * all_gather_s(elements * width / calls, cost::shard_placement(choice, job),
                              job.cluster, links::exchange_of(job, mesh::Axis::kShard));
}

double slowdown_of(const JobSpec& job, mesh::Axis axis) {
  const double all = static_cast<double>(job.cluster.multiprocessors);
  return all > 0 ? links::multiprocessors_taken(job.cluster, links::exchange_of(job, axis)) / all
                 : 0;
}

}  // namespace smp::time
