#include "search/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "search/stage_balance.h"
#include "smp/plan/base/check.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/layout/partition.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/planner/choice/layout_rules.h"
#include "smp/planner/choice/legality.h"

namespace smp::search {
namespace {

// Sequences are shared by several ranks only where each keeps this many tokens. Below the usual
// number the messages of context parallelism mostly cost more than the matmuls that they split.
constexpr int64_t kLeastContextTokens = 1024;
constexpr int64_t kUsualContextTokens = 4096;
// More tokens a microbatch mostly cost memory alone.
constexpr int64_t kUsualMicrobatchTokens = 65536;

// More chunks of a stage than this only add messages.
constexpr int64_t kMostVirtualStages = 12;

template <class T>
bool open_to(const std::optional<T>& pinned, const T& value) {
  return !pinned || *pinned == value;
}

int32_t narrow(int64_t number) { return static_cast<int32_t>(number); }

std::vector<int64_t> context_degrees(const JobSpec& job, bool open) {
  if (job.parallel.context_parallel_degree) return {*job.parallel.context_parallel_degree};
  std::vector<int64_t> degrees = {1};
  const int64_t sequence = job.training.sequence_length;
  for (int64_t c = 2; open && sequence / c >= kLeastContextTokens; c *= 2) {
    if (!rules::context_problem(job, c)) degrees.push_back(c);
  }
  return degrees;
}

// Of the context ranks those that exchange heads. On GPUs the engine has no ring.
std::vector<int64_t> exchange_degrees(const JobSpec& job, int64_t tensor, int64_t context) {
  if (job.parallel.context_exchange_degree) return {*job.parallel.context_exchange_degree};
  if (context == 1 || !job.parallel.framework.is_engine()) return {1};
  const bool has_ring = job.cluster.device == DeviceKind::kCpu;
  std::vector<int64_t> degrees;
  if (has_ring) degrees.push_back(1);
  for (const int64_t u : choice::divisors(context)) {
    if (u == 1 || (u < context && !has_ring)) continue;
    if (!rules::exchange_problem(job, tensor, context, u)) degrees.push_back(u);
  }
  // A pinned degree is priced even if no tensor degree leaves heads to exchange.
  const bool never = rules::exchange_problem(job, 1, context, context).has_value();
  if (degrees.empty() && never && job.parallel.context_parallel_degree) degrees.push_back(1);
  return degrees;
}

struct ExpertDegrees {
  int64_t expert = 1;
  int64_t tensor = 1;
};

// Degrees of the experts: e ranks share a layer's experts, and et of them one expert's matrices,
// taken from the t x c x d ranks that hold a stage.
std::vector<ExpertDegrees> expert_degrees(const JobSpec& job, bool open, int64_t tensor,
                                          int64_t ranks) {
  const ParallelSpec& parallel = job.parallel;
  if (job.model.num_experts == 0) return {{1, 1}};
  std::vector<ExpertDegrees> degrees;
  for (const int64_t e : choice::divisors(job.model.num_experts)) {
    if (!open && !parallel.expert_parallel_degree && e > 1) continue;
    if (!open_to(parallel.expert_parallel_degree, e)) continue;
    const int64_t most = default_expert_tensor(job, e, tensor);
    for (const int64_t et : {int64_t{1}, parallel.expert_tensor_degree.value_or(most)}) {
      if (et == 1 && tensor > 1 && e == 1 && !parallel.expert_tensor_degree) continue;
      if (!open_to(parallel.expert_tensor_degree, et) || rules::expert_problem(job, e, et, ranks) ||
          rules::engine_experts_problem(job, tensor, e, et, std::nullopt)) {
        continue;
      }
      if (degrees.empty() || degrees.back().expert != e || degrees.back().tensor != et) {
        degrees.push_back({e, et});
      }
    }
  }
  return degrees;
}

}  // namespace

bool SearchSpace::engine_runs(void (*change)(ParallelSpec&)) const {
  if (!engine_) return true;
  Plan plan;
  plan.job = job_;
  change(plan.job.parallel);
  const std::vector<std::string> lacks = rules::what_engine_lacks(plan);
  return std::all_of(lacks.begin(), lacks.end(), [&](const std::string& line) {
    return std::find(engine_lacks_.begin(), engine_lacks_.end(), line) != engine_lacks_.end();
  });
}

SearchSpace::SearchSpace(const choice::JobWithDefaults& defaulted)
    : job_(defaulted.job), forbidden_(defaulted.job.parallel.forbid) {
  const ParallelSpec& parallel = job_.parallel;
  const ClusterSpec& cluster = job_.cluster;
  const framework::FrameworkSupport& support = framework::framework_of(job_).offers;
  const layout::PartitionMethod method =
      layout::read_partition_method(parallel.partition_method).method;
  balances_ = method == layout::PartitionMethod::kAuto ||
              (method == layout::PartitionMethod::kUnsaid && parallel.partition.empty() &&
               defaulted.balances_stages);
  deals_to_chunks_ = !parallel.partition.empty() || (method != layout::PartitionMethod::kUnsaid &&
                                                     method != layout::PartitionMethod::kUniform);
  engine_ = cluster.device == DeviceKind::kCpu && parallel.framework.is_engine();
  if (engine_) {
    Plan plan;
    plan.job = job_;
    engine_lacks_ = rules::what_engine_lacks(plan);
  }

  const auto allowed = [](const auto& values, auto value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  using Change = void (*)(ParallelSpec&);
  const std::pair<Sharding, Change> kinds[] = {
      {Sharding::kNone, [](ParallelSpec& p) { p.sharding = Sharding::kNone; }},
      {Sharding::kOptimizerState, [](ParallelSpec& p) { p.sharding = Sharding::kOptimizerState; }},
      {Sharding::kGradients, [](ParallelSpec& p) { p.sharding = Sharding::kGradients; }},
      {Sharding::kParameters, [](ParallelSpec& p) { p.sharding = Sharding::kParameters; }},
  };
  for (const auto& [kind, change] : kinds) {
    if (parallel.sharding ? *parallel.sharding == kind
                          : allowed(support.shardings, kind) && engine_runs(change) &&
                                (kind != Sharding::kOptimizerState ||
                                 parallel.shard_optimizer_state.value_or(true))) {
      kinds_.push_back(kind);
    }
  }
  const std::pair<PipelineKind, Change> schedules[] = {
      {PipelineKind::kInterleaved,
       [](ParallelSpec& p) { p.pipeline = PipelineKind::kInterleaved; }},
      {PipelineKind::kVirtual, [](ParallelSpec& p) { p.pipeline = PipelineKind::kVirtual; }},
      {PipelineKind::kZbH1, [](ParallelSpec& p) { p.pipeline = PipelineKind::kZbH1; }},
      {PipelineKind::kZbV, [](ParallelSpec& p) { p.pipeline = PipelineKind::kZbV; }},
      {PipelineKind::kSimple, [](ParallelSpec& p) { p.pipeline = PipelineKind::kSimple; }},
  };
  for (const auto& [kind, change] : schedules) {
    const bool open = allowed(support.schedules, kind) && engine_runs(change);
    if (parallel.pipeline ? *parallel.pipeline == kind : open) schedules_.push_back(kind);
  }
  const std::pair<Recompute, Change> recomputes[] = {
      {Recompute::kNone, [](ParallelSpec& p) { p.recompute = Recompute::kNone; }},
      {Recompute::kSelective, [](ParallelSpec& p) { p.recompute = Recompute::kSelective; }},
      {Recompute::kFull,
       [](ParallelSpec& p) {
         p.recompute = Recompute::kFull;
         p.activation_checkpointing = true;
       }},
  };
  std::optional<Recompute> pinned = parallel.recompute;
  if (!pinned && parallel.activation_checkpointing) {
    pinned = *parallel.activation_checkpointing ? Recompute::kFull : Recompute::kNone;
  }
  // The core of attention is recomputed by flash attention anyway. What the engine makes again is a
  // product of the MLP, of which a list has none; on GPUs that was not measured yet.
  const bool gains =
      engine_ ? !model::is_list(job_.model) : job_.training.attention != AttentionKind::kFlash;
  for (const auto& [kind, change] : recomputes) {
    const bool open = engine_runs(change) && (gains || kind != Recompute::kSelective);
    if (pinned ? *pinned == kind : open) recomputes_.push_back(kind);
  }
  recompute_layers_open_ = !parallel.recompute_layers && !pinned;

  const bool link = cluster.device == DeviceKind::kCuda && cluster.host_link_bytes_per_s > 0;
  for (const bool parameters : {false, true}) {
    for (const bool optimizer : {false, true}) {
      for (const bool activations : {false, true}) {
        if (parameters && !optimizer) continue;  // weights on the host are updated there
        const auto open = [&](const std::optional<bool>& pin, bool value, bool reachable) {
          return pin ? *pin == value : !value || (link && !engine_ && reachable);
        };
        if (open(parallel.offload_activations, activations, support.offload_activations) &&
            open(parallel.offload_optimizer, optimizer, support.offload_optimizer) &&
            open(parallel.offload_parameters, parameters, support.offload_parameters)) {
          offloads_.push_back({activations, optimizer, parameters});
        }
      }
    }
  }
  sequence_parallel_open_ = !parallel.sequence_parallel && support.sequence_parallel &&
                            engine_runs([](ParallelSpec& p) { p.sequence_parallel = true; });
  // In other frameworks stages lie apart as it is.
  spread_open_ = parallel.placement_strategy == "cluster" && cluster.hosts > 1 && !engine_ &&
                 support.spread_placement;
  open_splits();
}

void SearchSpace::open_splits() {
  const ParallelSpec& parallel = job_.parallel;
  const framework::FrameworkSupport& support = framework::framework_of(job_).offers;
  cost::LayerCostTable costs(job_);
  const int64_t world = rules::world_size(job_.cluster);
  const bool context_open =
      support.context && engine_runs([](ParallelSpec& p) { p.context_parallel_degree = 2; });
  const bool experts_open =
      support.experts && engine_runs([](ParallelSpec& p) { p.expert_parallel_degree = 2; });
  for (const int64_t t : choice::legal_tensor_degrees(job_)) {
    if (!open_to(parallel.tensor_parallel_degree, t)) continue;
    for (const int64_t p : choice::legal_pipeline_degrees(job_, t)) {
      if (!open_to(parallel.pipeline_parallel_degree, p)) continue;
      if (p > 1 && schedules_.empty()) continue;
      for (const int64_t c : context_degrees(job_, context_open)) {
        if (world % (p * t * c) != 0) continue;
        const int64_t data = world / (p * t * c);
        for (const ExpertDegrees& e : expert_degrees(job_, experts_open, t, t * c * data)) {
          for (const int64_t u : exchange_degrees(job_, t, c)) {
            if (rules::exchange_problem(job_, t, c, u)) continue;
            Split& split = splits_.emplace_back();
            split.tensor = narrow(t);
            split.pipeline = narrow(p);
            split.context = narrow(c);
            split.exchange = narrow(u);
            split.expert = narrow(e.expert);
            split.expert_tensor = narrow(e.tensor);
            split.data = data;
            split.ends = ends_of(split, PipelineKind::kInterleaved, costs);
            split.ends_together = ends_of(split, PipelineKind::kZbV, costs);
          }
        }
      }
    }
  }
}

// The closed form knows the ends of a partition; the exact prices know all of it.
SearchSpace::Split::Ends SearchSpace::ends_of(const Split& split, PipelineKind kind,
                                              cost::LayerCostTable& costs) const {
  if (split.pipeline == 1) return {};
  const schedule::ScheduleShape shape{.kind = kind, .stages = split.pipeline};
  std::vector<int64_t> of_stage;
  if (balances_) {
    choice::LayoutChoice choice;
    choice.schedule = kind;
    choice.pipeline = split.pipeline;
    choice.tensor = split.tensor;
    choice.context = split.context;
    choice.exchange = split.exchange;
    choice.precision = *job_.training.precision;
    choice.placement = choice::placement_strategy_of(job_.parallel.placement_strategy);
    choice.recompute = recomputes_.front();
    choice.micro_batch = narrow(job_.training.micro_batch.value_or(1));
    const layout::PartitionWeights weights =
        seconds_of_chunks(job_.model, costs.of(choice).seconds);
    if (gains_uneven_stages(weights, shape)) of_stage = filled_stages(weights, shape);
  } else {
    const std::vector<int64_t> given = given_partition(job_, shape);
    const auto parts = static_cast<int64_t>(given.size());
    if (parts == shape.stages) {
      of_stage = given;
    } else if (parts == shape.stages * shape.chunks()) {
      of_stage = blocks_of_stages(shape, given);
    }
  }
  if (of_stage.empty()) return {};
  return {narrow(of_stage.front()), narrow(of_stage.back())};
}

void SearchSpace::set_schedule(const Split& split, const ScheduleChoice& schedule,
                               choice::LayoutChoice& choice) const {
  const auto& ends = schedule.kind == PipelineKind::kZbV ? split.ends_together : split.ends;
  choice.schedule = schedule.kind;
  choice.virtual_stages = schedule.virtual_stages;
  choice.first_stage_layers = choice.last_stage_layers = 0;
  if (schedule.even || ends.first == 0) return;
  // Each chunk needs a block; a list by hand has none too few.
  const int32_t least = job_.parallel.partition.empty() ? schedule.virtual_stages : 1;
  choice.first_stage_layers = std::max(ends.first, least);
  choice.last_stage_layers = std::max(ends.last, least);
  if (split.pipeline > 2) return;
  // Of two stages the other one has the rest.
  if (ends.last < least) {
    choice.first_stage_layers = ends.first + ends.last - choice.last_stage_layers;
  } else if (ends.first < least) {
    choice.last_stage_layers = ends.first + ends.last - choice.first_stage_layers;
  }
}

bool SearchSpace::deals_to_chunks() const {
  return deals_to_chunks_ || (balances_ && job_.parallel.framework.is_engine());
}

std::string SearchSpace::schedules_problem(const Split& split,
                                           const std::vector<choice::BatchShape>& batches) const {
  for (const choice::BatchShape& batch : batches) {
    if (!schedules(split, batch).empty()) return "";
  }
  if (batches.empty()) return "";
  const ParallelSpec& parallel = job_.parallel;
  const int64_t blocks = model::block_count(job_.model);
  for (const PipelineKind kind : schedules_) {
    const int64_t virtual_stages =
        kind == PipelineKind::kVirtual ? parallel.virtual_pipeline_degree.value_or(2) : 1;
    const int64_t chunks = kind == PipelineKind::kZbV ? 2 : virtual_stages;
    if (!deals_to_chunks() && chunks > 1 && blocks % (split.pipeline * chunks) != 0) {
      return fmt::format(
          "{} layers do not divide by {} stages x {} chunks: parallel.partition deals "
          "them",
          blocks, split.pipeline, chunks);
    }
    const schedule::ScheduleShape shape = shape_of(split, batches.front(), kind, virtual_stages);
    for (const auto& problem :
         {layout::stage_chunks_problem(blocks / split.pipeline, chunks),
          layout::partition_length_problem(parallel.partition, split.pipeline, chunks),
          schedule::schedule_refused(shape)}) {
      if (problem) return *problem;
    }
  }
  return "";
}

schedule::ScheduleShape SearchSpace::shape_of(const Split& split, const choice::BatchShape& batch,
                                              PipelineKind kind, int64_t chunks) const {
  schedule::ScheduleShape shape;
  shape.kind = kind;
  shape.stages = split.pipeline;
  shape.virtual_stages = chunks;
  shape.microbatches = batch.microbatches;
  shape.active_microbatches = job_.parallel.active_microbatches.value_or(0);
  return shape;
}

std::vector<SearchSpace::ScheduleChoice> SearchSpace::schedules(
    const Split& split, const choice::BatchShape& batch) const {
  const ParallelSpec& parallel = job_.parallel;
  if (split.pipeline == 1) {
    return {{parallel.pipeline.value_or(PipelineKind::kInterleaved),
             narrow(parallel.virtual_pipeline_degree.value_or(1))}};
  }
  std::vector<ScheduleChoice> open;
  const int64_t blocks = model::block_count(job_.model);
  for (const PipelineKind kind : schedules_) {
    const bool is_virtual = kind == PipelineKind::kVirtual;
    const int64_t most =
        is_virtual
            ? std::clamp<int64_t>(blocks / split.pipeline, 1,
                                  parallel.virtual_pipeline_degree.value_or(kMostVirtualStages))
            : 1;
    for (int64_t v = is_virtual ? 2 : 1; v <= most; ++v) {
      // zb_v cuts a stage's layers in two by itself.
      const int64_t chunks = kind == PipelineKind::kZbV ? 2 : v;
      if (!deals_to_chunks() && blocks % (split.pipeline * chunks) != 0 && chunks > 1) continue;
      if (layout::stage_chunks_problem(blocks / split.pipeline, chunks)) continue;
      if (layout::partition_length_problem(parallel.partition, split.pipeline, chunks)) continue;
      if (is_virtual && !open_to(parallel.virtual_pipeline_degree, v)) continue;
      if (schedule::schedule_refused(shape_of(split, batch, kind, v))) continue;
      open.push_back({kind, narrow(chunks)});
      if (balances_ && split.ends.first > 0) open.push_back({kind, narrow(chunks), true});
    }
  }
  return open;
}

std::vector<SearchSpace::ShardingChoice> SearchSpace::shardings(const Split& split) const {
  const ParallelSpec& parallel = job_.parallel;
  std::optional<int64_t> pinned = parallel.sharded_data_parallel_degree;
  std::vector<ShardingChoice> open;
  if (parallel.shard_optimizer_state == true) {  // over all of them
    if (pinned.value_or(split.data) != split.data) return open;
    pinned = split.data;
  }
  const framework::FrameworkSupport& support = framework::framework_of(job_).offers;
  for (const int64_t z : choice::divisors(split.data)) {
    if (!open_to(pinned, z)) continue;
    for (const Sharding kind : kinds_) {
      // Over context ranks alone; or asked for, or to be offloaded, where there is nobody to share
      // with.
      const bool alone =
          split.data == 1 &&
          ((split.context > 1 && framework::framework_model(job_).context_shards_states) ||
           kinds_.size() == 1 || (kind == Sharding::kParameters && offers_parameters()));
      if (!rules::agrees_on_shards(kind, z, split.data > 1)) continue;
      if (kind != Sharding::kNone && z == 1 && !alone) continue;
      const bool shards = kind != Sharding::kNone;
      if (shards &&
          rules::engine_experts_problem(job_, split.tensor, split.expert, split.expert_tensor,
                                        z * split.tensor * split.context)) {
        continue;
      }
      if (!support.sharded_pipelines && split.pipeline > 1 && kind > Sharding::kOptimizerState) {
        continue;
      }
      open.push_back({kind, narrow(z)});
    }
  }
  return open;
}

bool SearchSpace::is_rare(const choice::LayoutChoice& choice) const {
  const ParallelSpec& parallel = job_.parallel;
  const int64_t tokens = job_.training.sequence_length / choice.context;
  const int64_t chunks = int64_t{choice.pipeline} * choice.virtual_stages;
  const bool context = choice.context > 1 && !parallel.context_parallel_degree;
  return (choice.schedule == PipelineKind::kSimple && choice.pipeline > 1 && !parallel.pipeline) ||
         (context && tokens < kUsualContextTokens) ||
         (is_spread(choice.placement) && choice.tensor * choice.context > 1 && spread_open_) ||
         (choice.micro_batch * tokens > kUsualMicrobatchTokens && !job_.training.micro_batch) ||
         (!deals_to_chunks_ && choice.virtual_stages > 1 &&
          model::block_count(job_.model) % chunks != 0);
}

bool SearchSpace::offers_parameters() const {
  return std::any_of(offloads_.begin(), offloads_.end(),
                     [](const Offload& offload) { return offload.parameters; });
}

// Whole ones first: what costs no time, known or unknown, is not worth splitting.
std::vector<bool> SearchSpace::sequence_parallel(const Split& split) const {
  if (split.tensor == 1) return {false};
  if (sequence_parallel_open_ &&
      !rules::sequence_parallel_problem(job_, split.tensor, split.context)) {
    return {false, true};
  }
  return {job_.parallel.sequence_parallel.value_or(false)};
}

std::vector<choice::PlacementStrategy> SearchSpace::placements(const Split& split) const {
  using Strategy = choice::PlacementStrategy;
  // Tensor and context peers belong together; stages may lie apart to keep data-parallel peers
  // close.
  if (spread_open_ && split.pipeline > 1 && split.data > 1) {
    const bool alone = split.tensor * split.context == 1;
    return {Strategy::kCluster, alone ? Strategy::kSpread : Strategy::kPDT};
  }
  return {choice::placement_strategy_of(job_.parallel.placement_strategy)};
}

choice::LayoutChoice SearchSpace::first_choice(const Split& split,
                                               const choice::BatchShape& batch) const {
  const ParallelSpec& parallel = job_.parallel;
  choice::LayoutChoice choice;
  choice.tensor = split.tensor;
  choice.pipeline = split.pipeline;
  choice.context = split.context;
  choice.exchange = split.exchange;
  choice.expert = split.expert;
  choice.expert_tensor = split.expert_tensor;
  choice.replica = narrow(split.data);
  choice.precision = *job_.training.precision;
  choice.micro_batch = narrow(batch.micro_batch);
  choice.microbatches = narrow(batch.microbatches);
  choice.active_microbatches = narrow(parallel.active_microbatches.value_or(0));
  choice.recompute = recomputes_.front();
  choice.recompute_layers = narrow(parallel.recompute_layers.value_or(-1));
  return choice;
}

}  // namespace smp::search
