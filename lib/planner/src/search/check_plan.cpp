#include "smp/planner/search/check_plan.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "choice/batch.h"
#include "choice/resolve.h"
#include "search/unknown_framework.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/program/build.h"
#include "smp/plan/program/verify.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/layout_rules.h"
#include "smp/planner/choice/legality.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::search {
namespace {

using Problems = std::vector<std::string>;

void check_degrees(const Plan& plan, Problems& problems) {
  const mesh::Degrees& degrees = plan.degrees;
  if (const auto problem = rules::tensor_problem(plan.job, degrees.tensor)) {
    problems.push_back(fmt::format("tensor_parallel_degree {}: {}", degrees.tensor, *problem));
  }
  if (const auto problem = rules::pipeline_problem(plan.job, degrees.tensor, degrees.pipeline)) {
    problems.push_back(fmt::format("pipeline_parallel_degree {}: {}", degrees.pipeline, *problem));
  }
  if (const auto problem = rules::world_problem(degrees, plan.job.cluster)) {
    problems.push_back(*problem);
  }
  const Sharding sharding = plan.job.parallel.sharding.value_or(Sharding::kNone);
  if (const auto problem = rules::sharding_problem(sharding, degrees.shard, degrees.data() > 1)) {
    problems.push_back(*problem);
  }
  if (plan.job.parallel.shard_optimizer_state == true) {
    const auto problem = rules::shards_over_all_problem({degrees.data()}, degrees.shard);
    if (problem) problems.push_back(*problem);
  }
}

void check_batch(const Plan& plan, Problems& problems) {
  const TrainingSpec& training = plan.job.training;
  const choice::BatchShape batch{training.micro_batch.value_or(0),
                                 training.microbatches.value_or(0)};
  const int64_t data = plan.degrees.data();
  const std::string equation = choice::batch_equation(batch, data, training.sequence_length);
  const int64_t samples = batch.micro_batch * batch.microbatches * data;
  if (training.global_batch != samples) {
    problems.push_back(fmt::format("batch {}, but global_batch is {}", equation,
                                   text::with_commas(training.global_batch.value_or(0))));
  }
  if (samples * training.sequence_length > training.max_tokens_per_batch) {
    problems.push_back(fmt::format("batch {} > max_tokens_per_batch {}", equation,
                                   text::with_commas(training.max_tokens_per_batch)));
  }
}

void check_memory(const Plan& plan, const std::vector<RankPrediction>& planned,
                  Problems& problems) {
  const ClusterSpec& cluster = plan.job.cluster;
  const std::vector<RankPrediction> ranks = memory::predict_memory(plan);
  if (planned.size() != ranks.size()) {
    problems.push_back(
        fmt::format("predictions for {} rank classes, the degrees give {}: plan again",
                    planned.size(), ranks.size()));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankPrediction& rank = ranks[i];
    const std::string name = fmt::format("stage {} tensor {}", rank.stage, rank.tensor);
    if (rank.peak_bytes > memory::allowed_bytes(cluster)) {
      problems.push_back(fmt::format("{}: needs {} in {}, {} allowed", name,
                                     text::human_bytes(rank.peak_bytes), rank.peak_phase,
                                     text::human_bytes(memory::allowed_bytes(cluster))));
    }
    const int64_t host = rank.host_bytes * cluster.processes_per_host;
    if (cluster.host_memory_bytes > 0 && host > cluster.host_memory_bytes) {
      problems.push_back(
          fmt::format("{}: {} such ranks on a host need {} of host memory, a host has {}", name,
                      cluster.processes_per_host, text::human_bytes(host),
                      text::human_bytes(cluster.host_memory_bytes)));
    }
    if (i < planned.size() && planned[i].peak_bytes != rank.peak_bytes) {
      problems.push_back(fmt::format("{}: the plan predicts {} bytes, this version {}: plan again",
                                     name, text::with_commas(planned[i].peak_bytes),
                                     text::with_commas(rank.peak_bytes)));
    }
  }
}

void check_schedule(const Plan& plan, Problems& problems) {
  const schedule::ScheduleParameters parameters = layout::schedule_parameters(plan);
  if (const auto counter_example =
          schedule::verify(schedule::make_schedule(parameters), parameters)) {
    problems.push_back("schedule: " + *counter_example);
  }
  if (const auto counter_example = layout::verify_groups(plan)) {
    problems.push_back("groups: " + *counter_example);
  }
}

// The programs of the layers that the engine runs, on the tensor ranks that may differ.
void check_programs(const Plan& plan, Problems& problems) {
  if (!plan.job.parallel.framework.is_engine()) return;
  const ModelSpec& model = plan.job.model;
  if (!program::has_programs(model)) return;
  for (const int64_t tensor : std::set<int64_t>{0, plan.degrees.tensor - 1}) {
    const model::LayerCall call = layout::layer_call(plan, tensor);
    program::OfAlikeLayers<bool> proved(model);
    for (const model::LayerSpec& layer : model::layers_of(model)) {
      proved.of(layer, [&] {
        const std::string problem = program::verify(program::build(model, layer, call));
        if (!problem.empty()) problems.push_back(fmt::format("{}: {}", layer.name, problem));
        return problem.empty();
      });
    }
  }
}

void check_engine(const Plan& plan, Problems& problems) {
  if (plan.job.cluster.device != DeviceKind::kCpu) return;
  if (!plan.job.parallel.framework.is_engine()) return;
  for (const std::string& rule : rules::what_engine_lacks(plan)) {
    problems.push_back("the engine does not run " + rule);
  }
}

}  // namespace

std::vector<std::string> check(const Plan& written) {
  Plan plan = written;
  Problems problems;
  check_degrees(plan, problems);
  check_batch(plan, problems);
  // A layout or schedule of broken degrees means nothing.
  if (!problems.empty()) return problems;
  if (const auto problem = choice::layout_problem(plan.job, choice::choice_of(plan))) {
    return {*problem};
  }
  try {
    if (framework::is_unknown(plan.job.parallel.framework)) predict_as_unknown(plan);
    check_memory(plan, written.predictions.ranks, problems);
    check_schedule(plan, problems);
    check_programs(plan, problems);
  } catch (const ConfigError& error) {
    problems.emplace_back(error.what());
  }
  check_engine(plan, problems);
  return problems;
}

}  // namespace smp::search
