#include "report/report_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "choice/batch.h"
#include "search/stage_balance.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/model/model_flops.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/prediction/fit.h"

namespace smp::report {
namespace {

std::string title_line(const Plan& plan) {
  const ClusterSpec& cluster = plan.job.cluster;
  const int64_t world = plan.degrees.world();
  return fmt::format(
      "{}: {} parameters, {} rank{} ({} host{} x {}, {})\n", plan.job.name,
      text::with_commas(model::parameter_count(plan.job.model)), text::with_commas(world),
      world == 1 ? "" : "s", cluster.hosts, cluster.hosts == 1 ? "" : "s",
      cluster.processes_per_host,
      cluster.accelerator.empty() ? std::string(name_of(cluster.device)) : cluster.accelerator);
}

std::string chosen_lines(const Plan& plan) {
  std::string text = fmt::format("chosen   {}\n", layout_line(plan));
  if (plan.degrees.pipeline > 1) {
    text += fmt::format("         {}; the busiest stage computes {:.1f} % more than the average\n",
                        search::layers_of_stages(plan), (search::stage_balance(plan) - 1) * 100);
  }
  const TrainingSpec& training = plan.job.training;
  return text + fmt::format("batch    {}  (limit {})\n",
                            choice::batch_equation({*training.micro_batch, *training.microbatches},
                                                   plan.degrees.data(), training.sequence_length),
                            text::with_commas(training.max_tokens_per_batch));
}

// Fits or not, and the margin.
std::string fit_line(const Plan& plan, const search::SearchResult& result) {
  const search::PricedLayout& priced = *result.best_priced;
  const double peak = priced.memory.peak_bytes;
  const prediction::Range range = prediction::memory_range(plan.job, priced.choice, priced.memory);
  const std::string predicted = fmt::format("{} a rank at its peak ({} to {} in nine of ten runs)",
                                            text::human_bytes(text::whole_bytes(peak)),
                                            text::human_bytes(text::whole_bytes(range.low)),
                                            text::human_bytes(text::whole_bytes(range.high)));
  if (plan.job.cluster.memory_per_process_bytes == 0) {
    return fmt::format("memory   {}; no limit is given\n", predicted);
  }
  const auto allowed = static_cast<double>(memory::allowed_bytes(plan.job.cluster));
  return fmt::format("{:<8} {} of {} allowed: {} ({:.1f} %) to spare\n", name_of(result.fit),
                     predicted, text::human_bytes(text::whole_bytes(allowed)),
                     text::human_bytes(text::whole_bytes(allowed - peak)),
                     100 * (allowed - peak) / allowed);
}

std::string step_line(const Plan& plan, const search::SearchResult& result) {
  const search::PricedLayout& priced = *result.best_priced;
  const double step_s = priced.time.step_s;
  if (step_s <= 0) return "time     unknown: the cluster names no rates\n";
  const prediction::Range range = prediction::time_range(plan.job, priced.choice, priced.time);
  std::string text =
      fmt::format("time     {} a step ({} to {}), {} tokens/s", text::human_time(step_s),
                  text::human_time(range.low), text::human_time(range.high),
                  text::human_count(1 / priced.seconds_per_token));
  const double peak = model::peak_flops_per_s(plan.job.cluster, *plan.job.training.precision) *
                      static_cast<double>(plan.degrees.world());
  // The flops of a list of layers are not counted in closed form.
  if (peak > 0 && !model::is_list(plan.job.model)) {
    text += fmt::format(", MFU {:.1f} %", 100 * priced.time.model_flops / peak / step_s);
  }
  return text +
         fmt::format(", bubble {:.1f} %\n", static_cast<double>(plan.predictions.bubble_ppm) / 1e4);
}

std::string bottleneck_line(const search::Bottleneck& bottleneck) {
  std::string text =
      fmt::format("largest  memory: {} {} of the peak", name_of(bottleneck.memory_term),
                  text::human_bytes(text::whole_bytes(bottleneck.memory_term_bytes)));
  if (bottleneck.step_s > 0) {
    text += fmt::format("; time: {} {} of the step", name_of(bottleneck.time_part),
                        text::human_time(bottleneck.time_part_s));
  }
  return text + "\n";
}

std::string next_line(const search::SearchResult& result) {
  if (!result.runner_up) return "next     no other priced layout fits\n";
  const search::RunnerUp& next = *result.runner_up;
  if (next.seconds_per_token <= 0) return fmt::format("next     {}\n", next.layout);
  const double ratio = next.seconds_per_token / result.best_priced->seconds_per_token;
  const std::string against =
      std::abs(ratio - 1) < 5e-4
          ? "as fast"
          : fmt::format("{:.1f} % {}", 100 * std::abs(ratio > 1 ? ratio - 1 : 1 / ratio - 1),
                        ratio > 1 ? "slower" : "faster, and less simple");
  return fmt::format("next     {}: {} tokens/s, {}, {} a rank\n", next.layout,
                     text::human_count(1 / next.seconds_per_token), against,
                     text::human_bytes(text::whole_bytes(next.peak_bytes)));
}

std::string engine_line(const Plan& plan) {
  constexpr size_t kShown = 2;
  std::vector<std::string> lacks = lacks_of_engine(plan);
  if (lacks.empty()) {
    return plan.job.training.steps == 0 ? "runs here: yes, when training.steps is set\n"
                                        : "runs here: yes\n";
  }
  const size_t more = lacks.size() > kShown ? lacks.size() - kShown : 0;
  lacks.resize(lacks.size() - more);
  // Of several the keys alone: --explain has what each is about.
  if (lacks.size() > 1) {
    for (std::string& lack : lacks) lack.resize(std::min(lack.size(), lack.find(" (")));
  }
  return fmt::format("runs here: no, because of {}{}\n", fmt::join(lacks, "; "),
                     more > 0           ? fmt::format("; and {} more: --explain", more)
                     : lacks.size() > 1 ? ": --explain"
                                        : "");
}

std::string tower_line(const Plan& plan) {
  const int64_t parameters = plan.job.model.vision_parameters;
  if (parameters == 0) return "";
  return fmt::format(
      "warning  only the text part is priced in time: of the vision tower, its {} parameters on "
      "the first stage are all that counts\n",
      text::with_commas(parameters));
}

// What a run of the plan reads; nothing where the plan is not for a run.
std::string data_line(const Plan& plan) {
  const TrainingSpec& training = plan.job.training;
  if (model::is_list(plan.job.model)) return "";
  if (!training.data_sources.empty())
    return fmt::format("data     a mixture of {} sources\n", training.data_sources.size());
  if (training.data_path.empty()) return "";
  const bool is_text = training.data_tokens || training.data_format == DataFormat::kText ||
                       training.data_path == data::kPythonStdlib;
  return fmt::format("data     {}{}\n", training.data_path,
                     is_text ? ": each byte is one of 256 tokens" : "");
}

}  // namespace

std::string layout_line(const Plan& plan) {
  const mesh::Degrees& degrees = plan.degrees;
  const ParallelSpec& parallel = plan.job.parallel;
  std::string line = fmt::format("pipeline {} x tensor {}", degrees.pipeline, degrees.tensor);
  if (degrees.context > 1) line += fmt::format(" x context {}", degrees.context);
  if (degrees.exchange > 1) line += fmt::format(" (all-to-all over {})", degrees.exchange);
  line += fmt::format(" x data {} (shard {} x replica {})", degrees.data(), degrees.shard,
                      degrees.replica);
  if (degrees.expert > 1) line += fmt::format("; experts over {} ranks", degrees.expert);
  line += fmt::format("; sharding {}", name_of(*parallel.sharding));
  const Recompute recompute = parallel.recompute.value_or(
      parallel.activation_checkpointing.value_or(false) ? Recompute::kFull : Recompute::kNone);
  if (recompute != Recompute::kNone) {
    line += fmt::format("; recompute {}", name_of(recompute));
    if (parallel.recompute_layers) {
      line += fmt::format(" of {} layers a stage", *parallel.recompute_layers);
    }
  }
  if (parallel.sequence_parallel.value_or(false)) line += "; sequence parallel";
  if (degrees.tensor > 1 && !parallel.tensor_parallel.all()) {
    line += fmt::format("; whole on each tensor rank:{}{}{}",
                        parallel.tensor_parallel.attention ? "" : " attention",
                        parallel.tensor_parallel.mlp ? "" : " MLP",
                        parallel.tensor_parallel.embedding ? "" : " embedding");
  }
  if (parallel.offload_activations.value_or(false)) line += "; activations offloaded";
  if (parallel.offload_optimizer.value_or(false)) line += "; optimizer offloaded";
  if (parallel.offload_parameters.value_or(false)) line += "; parameters offloaded";
  if (degrees.pipeline > 1) {
    line += fmt::format("; pipeline {}", name_of(*parallel.pipeline));
    if (parallel.virtual_pipeline_degree.value_or(1) > 1) {
      line += fmt::format(" of {} chunks a rank", *parallel.virtual_pipeline_degree);
    }
  }
  return line;
}

std::vector<std::string> lacks_of_engine(const Plan& plan) {
  if (plan.job.training.steps > 0) return rules::what_engine_cannot_run(plan);
  // A job that trains draws its weights on the ranks; one that is only planned does not say.
  Plan trained = plan;
  trained.job.training.steps = 1;
  trained.job.parallel.delayed_parameter_initialization = true;
  return rules::what_engine_cannot_run(trained);
}

std::string summary_text(const search::SearchResult& result) {
  const Plan& plan = std::get<Plan>(result.best);
  std::string text = title_line(plan) + chosen_lines(plan);
  if (result.best_priced) text += fit_line(plan, result) + step_line(plan, result);
  if (result.bottleneck) text += bottleneck_line(*result.bottleneck);
  if (result.best_priced) text += next_line(result);
  return text + tower_line(plan) + engine_line(plan) + data_line(plan);
}

}  // namespace smp::report
