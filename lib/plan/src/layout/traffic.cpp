#include "smp/plan/layout/traffic.h"

#include <algorithm>
#include <utility>

#include "smp/plan/base/check.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/model/router_loads.h"
#include "smp/plan/program/build.h"
#include "smp/plan/program/messages.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {
namespace {

// Collects the rows of one rank. Equal calls share a row.
class TrafficList {
 public:
  TrafficList(const Plan& plan, const mesh::Mesh& mesh, int64_t rank, int64_t kv_copies)
      : plan_(plan), mesh_(mesh), rank_(rank), kv_copies_(kv_copies) {}

  void add(std::string_view label, mesh::CollectiveOp op, mesh::Axis axis, DType dtype,
           int64_t count, int64_t calls, int64_t most = 0) {
    const std::vector<int64_t> group = mesh_.group(rank_, axis, kv_copies_);
    if (group.size() == 1 || calls == 0 || count == 0) return;
    const auto size = static_cast<int64_t>(group.size());
    const auto index = std::find(group.begin(), group.end(), rank_) - group.begin();
    SMP_CHECK(index < size);
    const int64_t hosts = grid_of(plan_, group).hosts;
    const int64_t wire = calls * wire_bytes(op, size, index, count, bytes_of(dtype), 0, hosts);
    const int64_t most_wire = calls * wire_bytes(op, size, index, most, bytes_of(dtype), 0, hosts);
    for (Traffic& row : rows_) {
      if (row.label == label && row.op == op && row.axis == axis && row.dtype == dtype &&
          row.count == count) {
        row.calls += calls;
        row.wire_bytes += wire;
        row.most_wire_bytes += most_wire;
        return;
      }
    }
    rows_.push_back({std::string(label), op, axis, size, dtype, count, calls, wire, most_wire});
  }

  std::vector<Traffic> take() { return std::move(rows_); }

 private:
  const Plan& plan_;
  const mesh::Mesh& mesh_;
  int64_t rank_;
  int64_t kv_copies_;
  std::vector<Traffic> rows_;
};

bool is_block(const model::LayerSpec& layer) { return model::is_transformer_block(layer.kind); }

// Whether tensor ranks share whole experts, as our engine's do, if there are any.
bool shares_whole_experts(const JobSpec& job) {
  return job.model.num_experts == 0 ||
         (job.parallel.framework.is_engine() && job.cluster.device == DeviceKind::kCpu &&
          model::is_mixture_decoder(job.model));
}

// The messages of the runtime in one step, layer by layer and bucket by bucket.
class StepTraffic {
 public:
  StepTraffic(const Plan& plan, int64_t rank)
      : plan_(plan),
        mesh_(plan.degrees, plan.job.parallel.placement_strategy),
        layout_(rank_layout(plan, rank)),
        dtype_(compute_dtype(plan)),
        microbatches_(plan.job.training.microbatches.value()),
        tokens_(plan.job.training.micro_batch.value() * plan.job.training.sequence_length /
                plan.degrees.context),
        list_(plan, mesh_, rank, kv_copies(plan)) {}

  std::vector<Traffic> all() {
    tensor_parallel();
    pipeline_parallel();
    data_parallel();
    tied();
    list_.add("step.router_loads", mesh::CollectiveOp::kAllReduce, mesh::Axis::kWorld, DType::kF64,
              model::router_loads(plan_.job.model), 1);
    list_.add("step.norm_and_loss", mesh::CollectiveOp::kAllReduce, mesh::Axis::kWorld, DType::kF64,
              step_sums(plan_.job), 1);
    return list_.take();
  }

 private:
  // Number of calls of this rank's layers in a microbatch, by kind of message.
  struct Calls {
    int64_t blocks = 0, again = 0;  // recomputed
    int64_t selective = 0;          // blocks of which selective recomputation repeats a part
    // Two of a decoder's block beside an encoder.
    int64_t attentions = 0, attentions_again = 0;
    int64_t pairs = 0, pairs_again = 0;  // of matrices that the tensor ranks share
    int64_t memories = 0;                // made of an encoder's result
    int64_t shared_reads = 0;            // of a memory, by attention that the tensor ranks share
    int64_t embeddings = 0, heads = 0;   // an encoder_decoder embeds two sequences
    int64_t shared_embeddings = 0, shared_heads = 0;
  };
  // Of a block: how often it attends, and its pairs of matrices that the tensor ranks share.
  std::pair<int64_t, int64_t> attentions_and_pairs(const model::LayerSpec& layer) const {
    const ModelSpec& model = plan_.job.model;
    const TensorKinds& kinds = plan_.job.parallel.tensor_parallel;
    if (model::is_hybrid(model)) {
      const char letter = model::layer_letter(model, layer.index - 1);
      const bool is_mlp = letter == model::kMlpLetter || letter == model::kExpertsLetter;
      return {letter == model::kAttentionLetter ? 1 : 0,
              (is_mlp ? kinds.mlp : kinds.attention) ? 1 : 0};
    }
    const int64_t attentions = layer.kind == model::LayerKind::kCrossBlock ? 2 : 1;
    return {attentions, (kinds.attention ? attentions : 0) + (kinds.mlp ? 1 : 0)};
  }

  Calls calls_of_microbatch() const {
    const ModelSpec& model = plan_.job.model;
    const ParallelSpec& parallel = plan_.job.parallel;
    const TensorKinds& kinds = parallel.tensor_parallel;
    const auto layers = static_cast<int64_t>(layout_.layers.size());
    const int64_t most_again =
        parallel.recompute == Recompute::kFull ? parallel.recompute_layers.value_or(layers) : 0;
    Calls calls;
    for (const model::LayerSpec& layer : layout_.layers) {
      if (is_block(layer)) {
        const auto [attentions, pairs] = attentions_and_pairs(layer);
        const bool is_again = calls.blocks < most_again;
        ++calls.blocks;
        calls.attentions += attentions;
        calls.pairs += pairs;
        calls.again += is_again ? 1 : 0;
        calls.attentions_again += is_again ? attentions : 0;
        calls.pairs_again += is_again ? pairs : 0;
        calls.memories += model::opens_decoder(model, layer) ? 1 : 0;
        calls.shared_reads += kinds.attention ? std::max<int64_t>(0, attentions - 1) : 0;
      } else if (layer.kind == model::LayerKind::kEmbedding) {
        calls.embeddings += model.stack == Stack::kEncoderDecoder ? 2 : 1;
      } else if (layer.kind == model::LayerKind::kHead) {
        ++calls.heads;
      }
    }
    if (parallel.recompute == Recompute::kSelective) calls.selective = calls.blocks;
    calls.shared_embeddings = kinds.embedding ? calls.embeddings : 0;
    calls.shared_heads = kinds.embedding ? calls.heads : 0;
    return calls;
  }

  void tensor_parallel() {
    if (program::has_programs(plan_.job.model) && shares_whole_experts(plan_.job)) {
      programs();
    } else {
      formulas();
    }
    if (kv_copies(plan_) > 1) {
      const int64_t blocks = std::count_if(layout_.layers.begin(), layout_.layers.end(), is_block);
      const int64_t sums = blocks * (layout_.shards_gradients() ? microbatches_ : 1);
      for (const bool is_vector : {false, true}) {
        list_.add("tensor.kv_gradients", mesh::CollectiveOp::kAllReduce, mesh::Axis::kKvHead,
                  wide(dtype_), kv_elements_of_block(is_vector), sums);
      }
    }
  }

  // The messages of each layer's program.
  void programs() {
    if (plan_.degrees.tensor * plan_.degrees.context * plan_.degrees.expert == 1) return;
    const ParallelSpec& parallel = plan_.job.parallel;
    const model::LayerCall call = layer_call(plan_, layout_.coord.tensor, layout_.coord.context);
    const auto layers = static_cast<int64_t>(layout_.layers.size());
    const int64_t most_again =
        parallel.recompute == Recompute::kFull ? parallel.recompute_layers.value_or(layers) : 0;
    const bool defers = schedule::defers_weight_gradients(*parallel.pipeline);
    int64_t blocks = 0;
    program::OfAlikeLayers<program::LayerProgram> programs(plan_.job.model);
    for (const model::LayerSpec& layer : layout_.layers) {
      const program::LayerProgram& program =
          programs.of(layer, [&] { return program::build(plan_.job.model, layer, call); });
      const bool is_again = is_block(layer) && blocks++ < most_again;
      add(program, program::Section::kForward, is_again ? 2 : 1);
      if (is_block(layer) && parallel.recompute == Recompute::kSelective) {
        add(program, program::Section::kRematerialize, 1);
      }
      add(program, defers ? program::Section::kDeferring : program::Section::kBackward, 1);
      if (defers) add(program, program::Section::kWeights, 1);
    }
  }
  void add(const program::LayerProgram& program, program::Section section, int64_t calls) {
    for (const program::ProgramMessage& message : program::messages_of(program, section)) {
      list_.add(message.label, message.op, message.axis, message.dtype, message.count,
                calls * microbatches_, message.most);
      if (message.op != mesh::CollectiveOp::kSend) continue;
      list_.add(message.label, mesh::CollectiveOp::kRecv, message.axis, message.dtype,
                message.count, calls * microbatches_, message.most);
    }
  }

  // Of layers that the engine does not run.
  void formulas() {
    const ModelSpec& model = plan_.job.model;
    const Calls calls = calls_of_microbatch();
    if (plan_.job.parallel.sequence_parallel.value_or(false)) {
      split_sequences(calls);
    } else {
      whole_sequences(calls);
    }
    all_reduce("tensor.loss", wide(dtype_), tokens_, calls.shared_heads);      // max of the logits
    all_reduce("tensor.loss", wide(dtype_), 2 * tokens_, calls.shared_heads);  // sums, targets
    if (!model.qk_norm || !plan_.job.parallel.tensor_parallel.attention) return;
    // Each rank has worked on its own heads.
    if (model.qk_norm_over == QkNormOver::kAllHeads) {
      all_reduce("tensor.qk_norms", wide(dtype_), 2 * tokens_,
                 2 * calls.attentions + calls.attentions_again);
    } else {
      all_reduce("tensor.head_norms", wide(dtype_), 2 * norm_vectors() * model.head_dim,
                 calls.attentions);
    }
  }

  // Column- then row-parallel pairs: one sum forward, one backward for each (Shoeybi et al. 2019,
  // section 3); the vocabulary is cut in embedding and head.
  void whole_sequences(const Calls& calls) {
    all_reduce("tensor.forward", dtype_, hidden(),
               calls.pairs + calls.pairs_again + calls.shared_embeddings);
    const bool sums_memories = plan_.job.parallel.tensor_parallel.attention;
    all_reduce("tensor.backward", dtype_, hidden(),
               calls.pairs + (sums_memories ? calls.memories : 0) + calls.shared_heads);
  }

  // Each sum is scattered, and gathered ahead of the next matrix (Korthikanti et al. 2022, section
  // 4.2.2). Weight gradients need each norm's result, which is computed and gathered again.
  // Deferred ones need the gradient of each pair's output too, gathered again. A memory is gathered
  // by each block that attends to it, forward and for the weights that read it, and each sums its
  // gradient.
  void split_sequences(const Calls& calls) {
    const bool hybrid = model::is_hybrid(plan_.job.model);  // a block is one branch
    const int64_t branches = calls.blocks + (hybrid ? 0 : calls.attentions);  // with a norm, each
    const int64_t reads = hybrid ? 0 : calls.attentions - calls.blocks;       // of a memory
    const int64_t gathered =
        hybrid ? calls.blocks + calls.again : 2 * (calls.attentions + calls.attentions_again);
    const bool defers = schedule::defers_weight_gradients(*plan_.job.parallel.pipeline);
    scatter("tensor.forward", calls.pairs + calls.pairs_again + calls.shared_embeddings);
    gather("tensor.forward", gathered + calls.selective + calls.heads);
    scatter("tensor.backward", calls.pairs + calls.shared_reads + calls.shared_heads);
    gather("tensor.backward", (defers ? 3 : 2) * branches + reads + calls.embeddings + calls.heads);
    all_reduce(
        "tensor.norms", wide(dtype_), norm_vectors() * plan_.job.model.hidden_size,
        (plan_.job.model.shared_norm ? calls.blocks : branches) + calls.memories + calls.heads);
  }

  // `calls` are those of a microbatch.
  void all_reduce(const char* label, DType dtype, int64_t count, int64_t calls) {
    list_.add(label, mesh::CollectiveOp::kAllReduce, mesh::Axis::kTensor, dtype, count,
              calls * microbatches_);
  }
  void scatter(const char* label, int64_t calls) {
    list_.add(label, mesh::CollectiveOp::kReduceScatter, mesh::Axis::kTensor, dtype_, hidden(),
              calls * microbatches_);
  }
  void gather(const char* label, int64_t calls) {
    list_.add(label, mesh::CollectiveOp::kAllGather, mesh::Axis::kTensor, dtype_,
              hidden() / plan_.degrees.tensor, calls * microbatches_);
  }

  int64_t hidden() const { return tokens_ * plan_.job.model.hidden_size; }  // [b, s, h]
  int64_t norm_vectors() const { return plan_.job.model.norm == NormKind::kLayerNorm ? 2 : 1; }

  // k.weight and v.weight of one block, or their biases: neighbours in the flat buffer.
  int64_t kv_elements_of_block(bool is_vector) const {
    int64_t elements = 0;
    int64_t layer = -1;
    for (const PlacedParameter& parameter : layout_.parameters) {
      if (parameter.spec.split != model::TensorSplit::kKvHeads) continue;
      if (layer >= 0 && parameter.layer != layer) break;
      layer = parameter.layer;
      if (parameter.spec.is_vector == is_vector) elements += parameter.box.size();
    }
    return elements;
  }

  void pipeline_parallel() {
    const schedule::ScheduleShape shape = schedule_shape(plan_);
    const int64_t stage = layout_.coord.pipeline;
    std::vector<model::TensorSpec> before, after;  // of neighbours on other stages
    const std::vector<ChunkEnds> ends = chunk_ends(plan_, layout_);
    for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
      const int64_t position = schedule::position_of_chunk(shape, {stage, chunk});
      const bool is_last = position + 1 == shape.stages * shape.chunks();
      const auto& [takes, hands] = ends[static_cast<size_t>(chunk)];
      if (position > 0 && schedule::place_of_chunk(shape, position - 1).stage != stage) {
        before.insert(before.end(), takes.begin(), takes.end());
      }
      if (!is_last && schedule::place_of_chunk(shape, position + 1).stage != stage) {
        after.insert(after.end(), hands.begin(), hands.end());
      }
    }
    for (const model::TensorSpec& tensor : after) activation(mesh::CollectiveOp::kSend, tensor);
    for (const model::TensorSpec& tensor : before) activation(mesh::CollectiveOp::kRecv, tensor);
    for (const model::TensorSpec& tensor : before) gradient(mesh::CollectiveOp::kSend, tensor);
    for (const model::TensorSpec& tensor : after) gradient(mesh::CollectiveOp::kRecv, tensor);
  }

  void activation(mesh::CollectiveOp op, const model::TensorSpec& tensor) {
    list_.add("pipeline.activations", op, mesh::Axis::kPipeline, tensor.dtype, tensor.elements(),
              microbatches_);
  }
  void gradient(mesh::CollectiveOp op, const model::TensorSpec& tensor) {
    if (!tensor.has_gradient()) return;
    list_.add("pipeline.gradients", op, mesh::Axis::kPipeline, tensor.dtype, tensor.elements(),
              microbatches_);
  }

  // The calls are those of the schedule's actions.
  void data_parallel() {
    if (layout_.state.ranks() == 1) return;
    struct BucketCalls {
      int64_t reduce = 0, reduce_replicas = 0, gather = 0;
    };
    std::vector<BucketCalls> calls(layout_.scheduled);
    const schedule::Schedule schedule = schedule::make_schedule(schedule_parameters(plan_));
    for (const schedule::Action& action :
         schedule.actions[static_cast<size_t>(layout_.coord.pipeline)]) {
      if (action.bucket < 0) continue;
      BucketCalls& of = calls[static_cast<size_t>(action.bucket)];
      if (action.kind == schedule::ActionKind::kReduce) ++of.reduce;
      if (action.kind == schedule::ActionKind::kReduceReplicas) ++of.reduce_replicas;
      if (action.kind == schedule::ActionKind::kGather) ++of.gather;
    }
    const auto add = [&](const Bucket& bucket, const BucketCalls& of, const char* gradients,
                         const char* weights) {
      const int64_t size = bucket.size(), shard = layout_.share_of(bucket).shards;
      const bool experts = bucket.is_of_experts;
      if (layout_.state.shards == 1) {
        list_.add(gradients, mesh::CollectiveOp::kAllReduce,
                  experts ? mesh::Axis::kExpertData : mesh::Axis::kData, wide(dtype_), size,
                  of.reduce);
        return;
      }
      const mesh::Axis axis = experts ? mesh::Axis::kExpertShard : mesh::Axis::kShard;
      list_.add(gradients, mesh::CollectiveOp::kReduceScatter, axis, wide(dtype_), size, of.reduce);
      list_.add(gradients, mesh::CollectiveOp::kAllReduce, mesh::Axis::kReplica, wide(dtype_),
                size / shard, of.reduce_replicas);
      list_.add(weights, mesh::CollectiveOp::kAllGather, axis, dtype_, size / shard, of.gather);
    };
    for (size_t b = 0; b < calls.size(); ++b) {
      const Bucket& bucket = layout_.buckets[b];
      add(bucket, calls[b], "data.gradients", "shard.weights");
      if (bucket.experts < 0) continue;
      add(layout_.buckets[static_cast<size_t>(bucket.experts)], calls[b], "expert.gradients",
          "expert.weights");
    }
  }

  void tied() {
    if (!tied_across_stages(plan_)) return;
    const ModelSpec& model = plan_.job.model;
    const model::ParameterSpec weight = model::parameters_of(model, model::layers_of(model).front(),
                                                             plan_.job.parallel.tensor_parallel)
                                            .front();
    const int64_t count =
        model::tensor_box(model, weight, plan_.degrees.tensor, layout_.coord.tensor).size();
    if (layout_.coord.pipeline == 0) {
      list_.add("tied.gradients", mesh::CollectiveOp::kRecv, mesh::Axis::kTied, wide(dtype_), count,
                1);
      list_.add("tied.weights", mesh::CollectiveOp::kSend, mesh::Axis::kTied, dtype_, count, 1);
    } else if (layout_.coord.pipeline + 1 == plan_.degrees.pipeline) {
      list_.add("tied.gradients", mesh::CollectiveOp::kSend, mesh::Axis::kTied, wide(dtype_), count,
                1);
      list_.add("tied.weights", mesh::CollectiveOp::kRecv, mesh::Axis::kTied, dtype_, count, 1);
    }
  }

  const Plan& plan_;
  const mesh::Mesh mesh_;
  const RankLayout layout_;
  const DType dtype_;
  const int64_t microbatches_;
  const int64_t tokens_;  // of one microbatch
  TrafficList list_;
};

}  // namespace

int64_t router_sums(const ModelSpec& model, const model::LayerSpec& layer) {
  return model::has_experts(model, layer) ? model.num_experts + kRouterExtraSums : 0;
}

int64_t step_sums(const JobSpec& job) {
  int64_t sums = (counts_vary(job.training) ? 2 : 1) + job.model.num_mtp_layers;
  for (const model::LayerSpec& layer : model::layers_of(job.model)) {
    sums += 1 + router_sums(job.model, layer);
  }
  return sums;
}

std::vector<Traffic> step_traffic(const Plan& plan, int64_t rank) {
  return StepTraffic(plan, rank).all();
}

}  // namespace smp::layout
