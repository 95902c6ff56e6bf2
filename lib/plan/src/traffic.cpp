#include "smp/plan/traffic.h"

#include <algorithm>

#include "smp/plan/check.h"
#include "smp/plan/layer_tensors.h"
#include "smp/plan/layout.h"
#include "smp/plan/operators.h"
#include "smp/plan/plan.h"
#include "smp/plan/schedule.h"

namespace smp {
namespace {

// Collects the rows of one rank; calls that differ in nothing share a row.
class TrafficList {
 public:
  TrafficList(const Mesh& mesh, int64_t rank, int64_t kv_copies)
      : mesh_(mesh), rank_(rank), kv_copies_(kv_copies) {}

  void add(const char* label, CollectiveOp op, Axis axis, DType dtype, int64_t count,
           int64_t calls) {
    const std::vector<int64_t> group = mesh_.group(rank_, axis, kv_copies_);
    if (group.size() == 1 || calls == 0) return;
    const auto size = static_cast<int64_t>(group.size());
    const auto index = std::find(group.begin(), group.end(), rank_) - group.begin();
    SMP_CHECK(index < size);
    const int64_t wire = calls * wire_bytes(op, size, index, count, bytes_of(dtype));
    for (Traffic& row : rows_) {
      if (row.label == label && row.op == op && row.axis == axis && row.dtype == dtype &&
          row.count == count) {
        row.calls += calls;
        row.wire_bytes += wire;
        return;
      }
    }
    rows_.push_back({label, op, axis, size, dtype, count, calls, wire});
  }

  std::vector<Traffic> take() { return std::move(rows_); }

 private:
  const Mesh& mesh_;
  int64_t rank_;
  int64_t kv_copies_;
  std::vector<Traffic> rows_;
};

// 16-bit gradients are summed in fp32.
DType wide(DType dtype) { return bytes_of(dtype) == 2 ? DType::kF32 : dtype; }

bool is_block(const LayerSpec& layer) { return is_transformer_block(layer.kind); }

// What the runtime sends in one step, layer by layer and bucket by bucket.
class StepTraffic {
 public:
  StepTraffic(const Plan& plan, int64_t rank)
      : plan_(plan),
        mesh_(plan.degrees, plan.job.parallel.placement_strategy),
        layout_(rank_layout(plan, rank)),
        dtype_(compute_dtype(plan)),
        microbatches_(plan.job.training.microbatches.value()),
        tokens_(plan.job.training.micro_batch.value() * plan.job.training.sequence_length),
        list_(mesh_, rank, kv_copies(plan.job.model, plan.degrees.tensor)) {}

  std::vector<Traffic> all() {
    tensor_parallel();
    pipeline_parallel();
    data_parallel();
    tied();
    list_.add("step.norm_and_loss", CollectiveOp::kAllReduce, Axis::kWorld, DType::kF64,
              step_sums(plan_.job.model), 1);
    return list_.take();
  }

 private:
  // Column- then row-parallel pairs: one sum forward, one backward for each (Shoeybi et al. 2019,
  // section 3); the vocabulary is cut in embedding and head.
  void tensor_parallel() {
    const ModelSpec& model = plan_.job.model;
    if (is_list(model)) return;  // every rank computes all
    const ParallelSpec& parallel = plan_.job.parallel;
    const auto layers = static_cast<int64_t>(layout_.layers.size());
    const int64_t most_again =
        parallel.recompute == Recompute::kFull ? parallel.recompute_layers.value_or(layers) : 0;
    int64_t blocks = 0, attentions = 0, forward = 0, backward = 0;
    bool has_head = false;
    for (const LayerSpec& layer : layout_.layers) {
      if (is_block(layer)) {
        const int64_t branches = layer.kind == LayerKind::kCrossBlock ? 3 : 2;
        attentions += branches - 1;
        forward += branches * (blocks < most_again ? 2 : 1);
        backward += branches + (opens_decoder(model, layer) ? 1 : 0);  // and of the memory
        ++blocks;
      } else if (layer.kind == LayerKind::kEmbedding) {
        forward += model.stack == Stack::kEncoderDecoder ? 2 : 1;
      } else if (layer.kind == LayerKind::kHead) {
        has_head = true;
        ++backward;
      }
    }
    tensor("tensor.forward", dtype_, hidden(), forward * microbatches_);
    tensor("tensor.backward", dtype_, hidden(), backward * microbatches_);
    if (has_head) {
      tensor("tensor.loss", wide(dtype_), tokens_, microbatches_);  // max of the logits
      tensor("tensor.loss", wide(dtype_), 2 * tokens_,
             microbatches_);  // sum of exponentials, target
    }
    if (model.qk_norm) {  // each rank has worked on its own heads
      const int64_t vectors = model.norm == NormKind::kLayerNorm ? 4 : 2;
      tensor("tensor.head_norms", wide(dtype_), vectors * model.head_dim,
             attentions * microbatches_);
    }
    if (kv_copies(model, plan_.degrees.tensor) > 1) {
      list_.add("tensor.kv_gradients", CollectiveOp::kAllReduce, Axis::kKvHead, wide(dtype_),
                kv_elements_of_block(), blocks * (layout_.shards_gradients() ? microbatches_ : 1));
    }
  }

  void tensor(const char* label, DType dtype, int64_t count, int64_t calls) {
    list_.add(label, CollectiveOp::kAllReduce, Axis::kTensor, dtype, count, calls);
  }

  int64_t hidden() const { return tokens_ * plan_.job.model.hidden_size; }  // [b, s, h]

  // k.weight and v.weight of one block, neighbours in the flat buffer.
  int64_t kv_elements_of_block() const {
    int64_t elements = 0;
    int64_t layer = -1;
    for (const PlacedParameter& parameter : layout_.parameters) {
      if (parameter.spec.split != TensorSplit::kKvHeads) continue;
      if (layer >= 0 && parameter.layer != layer) break;
      layer = parameter.layer;
      elements += parameter.box.size();
    }
    return elements;
  }

  void pipeline_parallel() {
    const ScheduleShape shape = schedule_shape(plan_);
    const int64_t stage = layout_.coord.pipeline;
    std::vector<TensorSpec> before, after;  // of neighbours on other stages
    const std::vector<ChunkEnds> ends = chunk_ends(plan_, layout_);
    for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
      const int64_t position = position_of_chunk(shape, {stage, chunk});
      const bool is_last = position + 1 == shape.stages * shape.chunks();
      const auto& [takes, hands] = ends[static_cast<size_t>(chunk)];
      if (position > 0 && place_of_chunk(shape, position - 1).stage != stage) {
        before.insert(before.end(), takes.begin(), takes.end());
      }
      if (!is_last && place_of_chunk(shape, position + 1).stage != stage) {
        after.insert(after.end(), hands.begin(), hands.end());
      }
    }
    for (const TensorSpec& tensor : after) activation(CollectiveOp::kSend, tensor);
    for (const TensorSpec& tensor : before) activation(CollectiveOp::kRecv, tensor);
    for (const TensorSpec& tensor : before) gradient(CollectiveOp::kSend, tensor);
    for (const TensorSpec& tensor : after) gradient(CollectiveOp::kRecv, tensor);
  }

  void activation(CollectiveOp op, const TensorSpec& tensor) {
    list_.add("pipeline.activations", op, Axis::kPipeline, tensor.dtype, tensor.elements(),
              microbatches_);
  }
  void gradient(CollectiveOp op, const TensorSpec& tensor) {
    if (!tensor.has_gradient()) return;
    list_.add("pipeline.gradients", op, Axis::kPipeline, tensor.dtype, tensor.elements(),
              microbatches_);
  }

  void data_parallel() {
    const char* gradients = "data.gradients";
    const int64_t shard = plan_.degrees.shard;
    if (layout_.shards_gradients()) return sharded();
    for (const Bucket& bucket : layout_.buckets) {
      if (shard == 1) {
        list_.add(gradients, CollectiveOp::kAllReduce, Axis::kData, wide(dtype_), bucket.size(), 1);
        continue;
      }
      const int64_t own = bucket.size() / shard;
      list_.add(gradients, CollectiveOp::kReduceScatter, Axis::kShard, wide(dtype_), bucket.size(),
                1);
      list_.add(gradients, CollectiveOp::kAllReduce, Axis::kReplica, wide(dtype_), own, 1);
      list_.add("shard.weights", CollectiveOp::kAllGather, Axis::kShard, dtype_, own, 1);
    }
  }

  // Each microbatch's gradients are scattered, the sums of all then added over the replicas.
  void sharded() {
    std::vector<int64_t> gathers(layout_.buckets.size(), 1);  // after the step
    if (layout_.shards_weights()) {
      gathers.assign(layout_.buckets.size(), 0);
      const Schedule schedule = make_schedule(schedule_parameters(plan_));
      for (const Action& action : schedule.actions[static_cast<size_t>(layout_.coord.pipeline)]) {
        if (action.kind == ActionKind::kGather) ++gathers[static_cast<size_t>(action.bucket)];
      }
    }
    for (size_t b = 0; b < layout_.buckets.size(); ++b) {
      const int64_t size = layout_.buckets[b].size();
      const int64_t own = size / plan_.degrees.shard;
      list_.add("data.gradients", CollectiveOp::kReduceScatter, Axis::kShard, wide(dtype_), size,
                microbatches_);
      list_.add("data.gradients", CollectiveOp::kAllReduce, Axis::kReplica, wide(dtype_), own, 1);
      list_.add("shard.weights", CollectiveOp::kAllGather, Axis::kShard, dtype_, own, gathers[b]);
    }
  }

  void tied() {
    if (!tied_across_stages(plan_)) return;
    const ModelSpec& model = plan_.job.model;
    const ParameterSpec weight = parameters_of(model, layers_of(model).front()).front();
    const int64_t count =
        tensor_box(model, weight, plan_.degrees.tensor, layout_.coord.tensor).size();
    if (layout_.coord.pipeline == 0) {
      list_.add("tied.gradients", CollectiveOp::kRecv, Axis::kTied, wide(dtype_), count, 1);
      list_.add("tied.weights", CollectiveOp::kSend, Axis::kTied, dtype_, count, 1);
    } else if (layout_.coord.pipeline + 1 == plan_.degrees.pipeline) {
      list_.add("tied.gradients", CollectiveOp::kSend, Axis::kTied, wide(dtype_), count, 1);
      list_.add("tied.weights", CollectiveOp::kRecv, Axis::kTied, dtype_, count, 1);
    }
  }

  const Plan& plan_;
  const Mesh mesh_;
  const RankLayout layout_;
  const DType dtype_;
  const int64_t microbatches_;
  const int64_t tokens_;  // of one microbatch
  TrafficList list_;
};

}  // namespace

int64_t step_sums(const ModelSpec& model) {
  return static_cast<int64_t>(layers_of(model).size()) + 1;
}

std::vector<Traffic> step_traffic(const Plan& plan, int64_t rank) {
  return StepTraffic(plan, rank).all();
}

}  // namespace smp
