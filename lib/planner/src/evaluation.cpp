#include "evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/planner/legality.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

// Of one host, all its ranks being of the fullest stage.
int64_t host_bytes_of(const Plan& plan, const MemoryModel& memory) {
  int64_t most = 0;
  for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
    most = std::max(most, memory.offloaded_bytes(plan, stage));
  }
  return most * plan.job.cluster.processes_per_host;
}

}  // namespace

std::string memory_problem(const RankPrediction& rank, int64_t allowed) {
  std::vector<MemoryTerm> terms = rank.terms;
  std::stable_sort(terms.begin(), terms.end(),
                   [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; });
  std::string largest;
  for (size_t i = 0; i < std::min<size_t>(3, terms.size()); ++i) {
    largest +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", terms[i].name, human_bytes(terms[i].bytes));
  }
  return fmt::format("{} a rank, {} allowed ({})", human_bytes(rank.peak_bytes),
                     human_bytes(allowed), largest);
}

Evaluation evaluate(const SettledJob& settled, const Choice& choice, Models& models) {
  const ClusterSpec& cluster = settled.job.cluster;
  Evaluation evaluation;
  evaluation.choice = choice;
  evaluation.data = world_size(cluster) / (choice.tensor * choice.pipeline);
  const Plan plan = resolve(settled, choice);
  evaluation.fullest = models.memory.fullest_rank(plan);
  const int64_t allowed = allowed_bytes(cluster);
  if (cluster.memory_per_process_bytes > 0 && evaluation.fullest.peak_bytes > allowed) {
    evaluation.problem = memory_problem(evaluation.fullest, allowed);
    return evaluation;
  }
  evaluation.host_bytes = choice.offload ? host_bytes_of(plan, models.memory) : 0;
  if (cluster.host_memory_bytes > 0 && evaluation.host_bytes > cluster.host_memory_bytes) {
    evaluation.problem =
        fmt::format("{} of host memory for offloaded activations, a host has {}",
                    human_bytes(evaluation.host_bytes), human_bytes(cluster.host_memory_bytes));
    return evaluation;
  }
  evaluation.fits = true;
  evaluation.step_ns = models.time.predict(plan).step_ns;
  const TrainingSpec& training = plan.job.training;
  evaluation.seconds_per_token =
      static_cast<double>(evaluation.step_ns) * 1e-9 /
      static_cast<double>(*training.global_batch * training.sequence_length);
  return evaluation;
}

}  // namespace smp
