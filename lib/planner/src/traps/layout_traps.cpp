#include <fmt/format.h>

#include <algorithm>

#include "cost/rank_order.h"
#include "search/stage_balance.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/text/units.h"
#include "smp/planner/memory/memory_model.h"
#include "traps/rules.h"

namespace smp::traps {
namespace {

constexpr int64_t kMostBubblePpm = 200'000;  // a fifth
constexpr double kMostUneven = 0.05;         // of the busiest stage's work beyond the average

}  // namespace

Finding tensor_over_hosts(const Looked& at) {
  const links::Placement placement = cost::tensor_placement(at.choice, at.plan.job);
  if (placement.hosts <= 1) return std::nullopt;
  const ClusterSpec& cluster = at.cluster();
  std::string slower;
  if (cluster.intra_host_bytes_per_s > 0 && cluster.inter_host_bytes_per_s > 0) {
    slower = fmt::format(", {:.1f} times slower than inside one",
                         cluster.intra_host_bytes_per_s / cluster.inter_host_bytes_per_s);
  }
  return fmt::format(
      "the {} ranks of a tensor group are on {} hosts: every layer's all-reduces go between "
      "hosts{}. "
      "Remove placement_strategy '{}', so that a group is on one host of {} processes",
      at.choice.tensor, placement.hosts, slower, at.plan.job.parallel.placement_strategy,
      cluster.processes_per_host);
}

Finding kv_heads_replicated(const Looked& at) {
  const ModelSpec& model = at.model();
  const bool is_cut = at.plan.job.parallel.tensor_parallel.attention;
  if (model::is_list(model) || model.kv_lora_rank > 0 || !is_cut) return std::nullopt;
  if (at.choice.tensor <= model.num_kv_heads) return std::nullopt;
  return fmt::format(
      "tensor_parallel_degree {} is above the {} KV heads: each KV head, its weights and its "
      "computing are on {} ranks. With tensor_parallel_degree {} each is on one",
      at.choice.tensor, model.num_kv_heads, at.choice.tensor / model.num_kv_heads,
      model.num_kv_heads);
}

Finding pipeline_bubble(const Looked& at) {
  const int64_t bubble = at.plan.predictions.bubble_ppm;
  if (at.choice.pipeline == 1 || bubble <= kMostBubblePpm) return std::nullopt;
  // A 1F1B pipeline waits (p - 1) / (m + p - 1) of its time, with v chunks as (p - 1) / v.
  const int64_t chunks = std::max(1, at.choice.virtual_stages);
  const int64_t enough = (4 * (at.choice.pipeline - 1) + chunks - 1) / chunks;
  const bool more = enough > at.choice.microbatches;
  return fmt::format(
      "{} microbatches in {} stages: stages wait {:.0f} % of the pipeline's time. {}",
      at.choice.microbatches, at.choice.pipeline, static_cast<double>(bubble) / 1e4,
      more ? fmt::format("With {} microbatches or more (a larger global_batch, a smaller "
                         "micro_batch or fewer replicas) it is below 20 %",
                         enough)
           : "Its stages are uneven: see parallel.partition_method, or use fewer stages");
}

Finding uneven_stages(const Looked& at) {
  if (at.choice.pipeline == 1 || model::is_list(at.model())) return std::nullopt;
  const int64_t blocks = model::block_count(at.model());
  const int64_t chunks = int64_t{at.choice.pipeline} * std::max(1, at.choice.virtual_stages);
  const double uneven = search::stage_balance(at.plan) - 1;
  if (blocks % chunks == 0 || uneven <= kMostUneven) return std::nullopt;
  return fmt::format(
      "{} layers do not divide by {} stages{} ({}): the busiest stage computes {:.0f} % more than "
      "the average, and the others wait for it. Use a degree that divides {}, or add layers",
      blocks, at.choice.pipeline,
      chunks > at.choice.pipeline ? fmt::format(" of {} chunks", at.choice.virtual_stages) : "",
      search::layers_of_stages(at.plan), uneven * 100, blocks);
}

Finding expert_imbalance(const Looked& at) {
  if (at.cluster().memory_per_process_bytes == 0) return std::nullopt;
  const int64_t allowed = memory::allowed_bytes(at.cluster());
  const memory::EventPeak* worst = nullptr;
  int64_t usual = 0;
  for (const memory::EventPeak& event : at.events) {
    if (!event.event.starts_with("imbalance")) {
      usual = std::max(usual, event.bytes);
    } else if (worst == nullptr || event.bytes > worst->bytes) {
      worst = &event;
    }
  }
  if (worst == nullptr || worst->bytes <= allowed || usual > allowed) return std::nullopt;
  return fmt::format(
      "a rank whose experts get more than their share of the tokens needs {} ({}), {} allowed: "
      "recompute more, lower micro_batch, or limit the tokens of an expert (capacity factor)",
      text::human_bytes(worst->bytes), worst->event, text::human_bytes(allowed));
}

}  // namespace smp::traps
