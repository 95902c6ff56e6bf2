#include <cmath>

#include "search/stage_balance.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/json.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/report/report.h"

namespace smp::report {
namespace {

text::OrderedJson rank_json(memory::MemoryModel& model, const RankPrediction& rank) {
  text::OrderedJson terms = text::OrderedJson::array();
  for (const MemoryTerm& term : rank.terms) {
    terms.push_back({{"name", term.name},
                     {"category", name_of(term.category)},
                     {"bytes", term.bytes},
                     {"formula", term.formula},
                     {"source", term.source}});
  }
  text::OrderedJson phases = text::OrderedJson::object();
  for (const memory::PhasePeak& peak : model.phases(rank.stage, rank.tensor))
    phases[peak.phase] = peak.bytes;
  return {{"stage", rank.stage},           {"tensor", rank.tensor},
          {"peak_bytes", rank.peak_bytes}, {"peak_phase", rank.peak_phase},
          {"host_bytes", rank.host_bytes}, {"phases", std::move(phases)},
          {"busy_ns", rank.busy_ns},       {"terms", std::move(terms)}};
}

text::OrderedJson plan_json(const Plan& plan, bool terms) {
  const TrainingSpec& training = plan.job.training;
  const ParallelSpec& parallel = plan.job.parallel;
  const mesh::Degrees& degrees = plan.degrees;
  text::OrderedJson json = {
      {"pipeline_parallel_degree", degrees.pipeline},
      {"tensor_parallel_degree", degrees.tensor},
      {"data_parallel_degree", degrees.data()},
      {"sharded_data_parallel_degree", degrees.shard},
      {"replica_degree", degrees.replica},
      {"smp_dp_size", degrees.data() * degrees.tensor * degrees.context},
      {"smp_rdp_size", degrees.data()},
      {"sharding", name_of(*parallel.sharding)},
      {"precision", name_of(*training.precision)},
      {"activation_checkpointing", *parallel.activation_checkpointing},
      {"offload_activations", *parallel.offload_activations},
      {"delayed_parameter_initialization", *parallel.delayed_parameter_initialization},
      {"pipeline", name_of(*parallel.pipeline)},
      {"partition", parallel.partition},
      {"stage_balance", search::stage_balance(plan)},
      {"micro_batch", *training.micro_batch},
      {"microbatches", *training.microbatches},
      {"global_batch", *training.global_batch},
      {"tokens_per_step", plan.predictions.tokens_per_step},
      {"step_ns", plan.predictions.step_ns},
      {"bubble_ppm", plan.predictions.bubble_ppm}};
  if (!terms) {
    int64_t peak = 0;
    for (const RankPrediction& rank : plan.predictions.ranks) {
      peak = std::max(peak, rank.peak_bytes);
    }
    json["peak_bytes"] = peak;
    return json;
  }
  json["reasons"] = plan.reasons;
  text::OrderedJson ranks = text::OrderedJson::array();
  memory::MemoryModel model(plan);
  for (const RankPrediction& rank : plan.predictions.ranks) {
    ranks.push_back(rank_json(model, rank));
  }
  json["ranks"] = std::move(ranks);
  return json;
}

text::OrderedJson scaled_json(const calibration::ScaledRun& scaled) {
  text::OrderedJson memory = text::OrderedJson::array();
  for (const calibration::ScaledTerm& term : scaled.memory) {
    memory.push_back({{"category", term.name},
                      {"predicted_bytes", static_cast<int64_t>(term.predicted)},
                      {"ratio", term.ratio},
                      {"bytes", static_cast<int64_t>(term.scaled())}});
  }
  return {{"memory", std::move(memory)},
          {"peak_bytes", static_cast<int64_t>(scaled.peak_bytes)},
          {"allowed_bytes", static_cast<int64_t>(scaled.allowed_bytes)},
          {"step",
           {{"predicted_s", scaled.step.predicted},
            {"ratio", scaled.step.ratio},
            {"seconds", scaled.step.scaled()}}}};
}

text::OrderedJson priced_json(const search::PricedLayout& layout) {
  return {{"layout", choice::describe(layout.choice)},
          {"step_s", layout.time.step_s},
          {"seconds_per_token", layout.seconds_per_token},
          {"cost_per_token", layout.cost_per_token},
          {"peak_bytes", static_cast<int64_t>(layout.memory.peak_bytes)},
          {"fits", name_of(layout.fit)}};
}

void add_search(text::OrderedJson& json, const search::SearchResult& result) {
  json["strategy"] = name_of(result.strategy);
  if (result.best_priced) json["fits"] = name_of(result.fit);
  if (result.bottleneck) {
    const search::Bottleneck& bottleneck = *result.bottleneck;
    json["bottleneck"] = {{"memory_term", name_of(bottleneck.memory_term)},
                          {"memory_term_bytes", static_cast<int64_t>(bottleneck.memory_term_bytes)},
                          {"peak_bytes", static_cast<int64_t>(bottleneck.peak_bytes)},
                          {"allowed_bytes", static_cast<int64_t>(bottleneck.allowed_bytes)},
                          {"time_part", name_of(bottleneck.time_part)},
                          {"time_part_s", bottleneck.time_part_s},
                          {"step_s", bottleneck.step_s}};
  }
  if (result.best_priced && std::holds_alternative<Plan>(result.best)) {
    text::OrderedJson parts = text::OrderedJson::array();
    for (int i = 0; i < time::kTimeParts; ++i) {
      const auto part = static_cast<time::TimePart>(i);
      parts.push_back(
          {{"name", name_of(part)}, {"ns", std::llround(result.best_priced->time[part] * 1e9)}});
    }
    const JobSpec& job = std::get<Plan>(result.best).job;
    const search::PricedLayout& priced = *result.best_priced;
    const prediction::Range memory = prediction::memory_range(job, priced.choice, priced.memory);
    const prediction::Range time = prediction::time_range(job, priced.choice, priced.time);
    json["ranges"] = {{"peak_bytes", {std::llround(memory.low), std::llround(memory.high)}},
                      {"step_ns", {std::llround(time.low * 1e9), std::llround(time.high * 1e9)}}};
    json["time"] = {{"step_ns", std::llround(result.best_priced->time.step_s * 1e9)},
                    {"model_flops", result.best_priced->time.model_flops},
                    {"parts", std::move(parts)}};
  }
  json["sensitivities"] = text::OrderedJson::array();
  for (const search::Sensitivity& sensitivity : result.sensitivities) {
    json["sensitivities"].push_back({{"resource", sensitivity.resource},
                                     {"step_s_before", sensitivity.step_s_before},
                                     {"step_s_after", sensitivity.step_s_after},
                                     {"layout", sensitivity.layout}});
  }
  if (result.difference) {
    const search::StrategyDifference& difference = *result.difference;
    json["difference"] = {{"strategy", name_of(difference.other)},
                          {"layout", difference.layout},
                          {"step_s", difference.step_s},
                          {"seconds_per_token", difference.seconds_per_token},
                          {"chosen_seconds_per_token", difference.winner_seconds_per_token},
                          {"differences", difference.differences}};
  }
  json["pareto"] = text::OrderedJson::array();
  for (const search::PricedLayout& point : result.pareto)
    json["pareto"].push_back(priced_json(point));
  json["search"] = {{"evaluations", result.statistics.evaluations},
                    {"bounds", result.statistics.bounds},
                    {"simulated", result.statistics.simulated},
                    {"exact", result.statistics.exact},
                    {"seconds", result.statistics.seconds},
                    {"total_seconds", result.statistics.total_seconds}};
}

}  // namespace

std::string report_json(const search::SearchResult& result, const ReportOptions& options,
                        const std::optional<calibration::ScaledRun>& scaled) {
  text::OrderedJson json;
  if (const Plan* plan = std::get_if<Plan>(&result.best)) {
    json["feasible"] = true;
    json["job"] = plan->job.name;
    json["parameters"] = model::parameter_count(plan->job.model);
    json["plan"] = plan_json(*plan, true);
  } else {
    const search::Infeasible& infeasible = std::get<search::Infeasible>(result.best);
    json["feasible"] = false;
    json["problem"] = infeasible.problem;
    json["changes"] = infeasible.changes;
  }
  json["others"] = text::OrderedJson::array();
  const auto wanted = static_cast<size_t>(std::max<int64_t>(0, options.top - 1));
  for (size_t i = 0; i < std::min(wanted, result.others.size()); ++i) {
    json["others"].push_back(plan_json(result.others[i], false));
  }
  json["families"] = text::OrderedJson::array();
  for (const search::FamilyVerdict& verdict : result.families) {
    json["families"].push_back({{"tensor", verdict.tensor},
                                {"pipeline", verdict.pipeline},
                                {"sharding", verdict.sharding},
                                {"outcome", name_of(verdict.outcome)},
                                {"context", verdict.context},
                                {"expert", verdict.expert},
                                {"step_s", verdict.step_s},
                                {"peak_bytes", static_cast<int64_t>(verdict.peak_bytes)},
                                {"reason", verdict.reason}});
  }
  add_search(json, result);
  if (scaled) json["scaled"] = scaled_json(*scaled);
  return json.dump(2) + "\n";
}

}  // namespace smp::report
