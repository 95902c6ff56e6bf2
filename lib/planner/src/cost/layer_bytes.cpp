#include "smp/planner/cost/layer_bytes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost/engine_bytes.h"
#include "cost/frozen_layers.h"
#include "cost/held_by_messages.h"
#include "cost/in_engine.h"
#include "cost/layer_parameters.h"
#include "cost/mamba_layer.h"
#include "cost/norms_apart.h"
#include "cost/rank_order.h"
#include "cost/routed_tokens.h"
#include "cost/state_bytes.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/spec/recompute_modules.h"
#include "smp/planner/cost/narrow_matmuls.h"

// Bytes that one call of a layer keeps and needs on an accelerator, tensor by tensor; the sums are
// those of Korthikanti et al. 2022 (arXiv 2205.05198) where that paper's block is meant.
// T = tokens of one call on one rank, h = hidden size, e = bytes of an element.
namespace smp::cost {
namespace {

constexpr double kMaskBytes = 1;  // dropout masks are bytes

double per_rank(int64_t count, int64_t ranks) {
  return std::max(1.0, std::ceil(static_cast<double>(count) / static_cast<double>(ranks)));
}

// Sizes of one call's tensors on one rank.
struct Shapes {
  Shapes(const JobSpec& job, const choice::LayoutChoice& choice, bool trains_weights = true)
      : model(job.model),
        training(job.training),
        framework(framework::framework_model(job)),
        trains(trains_weights) {
    e = element_bytes(choice.precision);
    t = choice.tensor;
    sequence = static_cast<double>(job.training.sequence_length);
    local_sequence = sequence / choice.context;
    batch = choice.micro_batch;
    tokens = batch * local_sequence;
    h = static_cast<double>(model.hidden_size);
    whole = e * tokens * h;
    split = choice.sequence_parallel && choice.tensor > 1;
    cut_checkpoints = job.parallel.partition_activations && !split && choice.tensor > 1;
    wide = split ? whole / t : whole;
    mask = model.hidden_dropout > 0 ? wide / e * kMaskBytes : 0;
    const TensorKinds& kinds = job.parallel.tensor_parallel;
    heads = per_rank(model.num_heads, kinds.attention ? choice.tensor : 1);
    kv_heads = per_rank(model.num_kv_heads, kinds.attention ? choice.tensor : 1);
    heads_ranks = kinds.attention ? t : 1;
    mlp_ranks = kinds.mlp ? t : 1;
    fused = framework.fused_kernels || training.compiled;
    drops_first_product = recomputes_mlps(job);
    drops = recompute_modules(job.parallel);
    norm_before_attention = has_norm_before_attention(job);
    norm_before_mlp = has_norm_before_mlp(job);
    fullest = fullest_share(job);
    if (is_narrow(choice.precision) && framework.transformer_engine) {
      read = narrow_bytes(job, choice.precision) / e;
    }
    if (!trains) read = 0;
    copies = !fused && model.norm == NormKind::kRmsNorm && e < kFp32Bytes;
    stream = copies && !trains ? 0 : wide;
    stats = tokens / (split ? t : 1) * (model.norm == NormKind::kLayerNorm ? 2 : 1) * kFp32Bytes;
  }

  // What a norm keeps beside its input and output. torch.nn.RMSNorm of several kernels: its input
  // in fp32 and the normed input before the weight.
  double norm_kept() const {
    return stats + (copies ? (kFp32Bytes + (trains ? e : 0)) / e * wide : 0);
  }

  const ModelSpec& model;
  const TrainingSpec& training;
  const framework::FrameworkModel& framework;
  bool trains;  // weights: a frozen matrix keeps no input
  double e, t, sequence, local_sequence, batch, tokens, h;
  bool split;            // sequence parallelism cuts what tensor parallelism does not
  bool cut_checkpoints;  // tensor ranks keep a part of a checkpoint each
  double whole;          // [T, h]
  double wide;           // the same, cut by sequence parallelism
  double mask;           // of the dropout before a residual sum
  double heads, kv_heads, heads_ranks, mlp_ranks;
  // Of what a matmul keeps of its input: Transformer Engine keeps 8 bits an element where nothing
  // else needs the tensor (pytorch/module/linear.py, saved_inputmat).
  double read = 1;
  double fullest;          // tokens of the fullest rank's experts, over the mean
  bool fused;              // kernels of norms and of gated activations
  RecomputeModules drops;  // by selective recomputation
  bool norm_before_attention, norm_before_mlp;  // modules of their own
  bool drops_first_product;                     // of the MLP, and nothing else: our engine
  double stats;                                 // of a norm
  bool copies;                                  // norms keep their input in fp32
  double stream;  // what else keeps it: the residual stream in its own precision
};

// What a part of a block keeps, and the most temporaries of its backward.
struct Part {
  double kept = 0;
  double dropped = 0;  // of `kept`, by selective recompute
  double backward = 0;
};

// Norm, projections and core of attention, up to the residual sum.
Part attention(const Shapes& s) {
  const ModelSpec& m = s.model;
  const bool latent = m.kv_lora_rank > 0;
  const auto query_dim =
      static_cast<double>(latent ? m.qk_head_dim + m.qk_rope_head_dim : m.head_dim);
  const auto value_dim = static_cast<double>(latent ? m.v_head_dim : m.head_dim);
  const double key_heads = latent || s.framework.repeats_kv_heads ? s.heads : s.kv_heads;
  const double row = s.e * s.tokens;
  const double queries = row * s.heads * query_dim;
  const double keys = row * key_heads * query_dim;
  const double values = row * key_heads * value_dim;
  const double out = row * s.heads * value_dim;

  Part part;
  part.kept = s.norm_kept() + s.read * s.wide + queries + keys + values;  // norm's output, Q, K, V
  // The core's output: for the projection's weights, and for flash attention's own backward.
  if (s.trains || s.training.attention == AttentionKind::kFlash) part.kept += out;
  if (latent) {
    // Compressed queries and keys before and after their norms, and K and V before they are joined
    // with the rotary part.
    part.kept +=
        (1 + s.read) * row * static_cast<double>(m.q_lora_rank + m.kv_lora_rank) + keys + values;
  }
  // Megatron's delayed scaling: the projection keeps 8 bits beside what attention keeps.
  if (s.read < 1) part.kept += s.read * out;
  if (m.qk_norm) part.kept += queries + keys;
  const double scores = s.batch * s.heads * s.local_sequence * s.sequence;
  double core = 0;
  if (s.training.attention == AttentionKind::kFlash) {
    core = kFp32Bytes * s.tokens * s.heads;  // log-sum-exp
    // Gradients of Q, K, V and of the output; Q's is summed in fp32.
    part.backward = 2 * queries + keys + values + out;
  } else {
    core = s.e * scores;  // softmax
    if (m.attention_dropout > 0) core += (kMaskBytes + s.e) * scores;
    part.backward = 2 * s.e * scores + out;
  }
  part.kept += core + s.mask;
  part.backward += s.whole + s.wide;
  if (s.drops_first_product) return part;
  if (s.drops.core_attention) part.dropped += core;
  if (s.drops.mla_up) part.dropped += queries + 2 * (keys + values);
  return part;
}

// Of a norm before attention that is recomputed: its output. Of a decoder beside an encoder the one
// before its own attention alone.
double dropped_norm(const Shapes& s) {
  return s.drops.norms && s.norm_before_attention ? s.read * s.wide : 0;
}

Part attention_with_norm(const Shapes& s, double attentions = 1) {
  Part part = attention(s);
  part.kept *= attentions;
  part.dropped = attentions * part.dropped + dropped_norm(s);
  return part;
}

// Norm and MLP of `rows` rows (tokens, or routed tokens) and `width` columns on this rank.
double mlp_kept(const Shapes& s, double rows, double width) {
  const double column = s.e * rows * width;
  if (!is_gated(s.model.mlp)) return (1 + s.read) * column;
  return ((s.fused && s.framework.fused_gate ? 2 : 3) + s.read) *
         column;  // gate, up, product; silu(gate)
}

double weight_gradient(const Shapes& s, double parameters) {
  return s.framework.fused_weight_gradients || !s.trains ? 0 : s.e * parameters;
}

// Most that a dense MLP's backward needs beyond what is kept. Each step releases what it has read:
// the second matmul makes the gradient of its input, the activation turns that into the gradient of
// what the first matmul made, which makes the gradient of the norm's output.
double mlp_backward(const Shapes& s, double width) {
  const double column = s.e * s.tokens * width;
  const double made = is_gated(s.model.mlp) ? 2 : 1;  // columns that the first matmul makes
  const double gathered = s.split ? s.whole : 0;      // sequence parallelism's matmuls
  const double second =
      (s.mask > 0 ? s.wide : 0) + gathered + column + weight_gradient(s, s.h * width);
  const double activation = made * column;
  const double first = s.whole + gathered - column + weight_gradient(s, made * s.h * width);
  return std::max({second, activation, first});
}

// Of experts, whose grouped kernels hold all three.
double experts_backward(const Shapes& s, double rows, double width) {
  return s.e * rows * width * (is_gated(s.model.mlp) ? 3 : 2);
}

// From the parts of a block to what the walk adds and releases.
CallBytes block_of(const Shapes& s, const Part& attention, const Part& mlp) {
  CallBytes call;
  call.output = s.wide;
  call.input_gradient = s.wide;
  // The residual sum between the two parts, and the block's output: inputs of norms.
  double fixed = s.mask + 2 * s.stream;
  // Norms of what attention and the MLP put out keep their inputs.
  if (s.model.norm_placement == NormPlacement::kBoth) fixed += 2 * (s.norm_kept() + s.stream);
  call.saved = attention.kept + mlp.kept + fixed;
  const double alive = call.saved + 2 * (s.wide - s.stream);  // until the block's forward ends
  call.selective = call.saved - attention.dropped - mlp.dropped;
  if (s.framework.selective_per_operation) {
    // torchtitan's policy: outputs of every other matmul (Q, V, W1, W2) and of attention.
    const double row = s.e * s.tokens;
    const auto head = static_cast<double>(s.model.head_dim);
    const double width = static_cast<double>(s.model.ffn_hidden_size) / s.mlp_ranks;
    call.selective = 2 * s.wide + row * (2 * s.heads + s.kv_heads) * head + row * width +
                     kFp32Bytes * s.tokens * s.heads;
  }
  call.checkpoint = s.wide;
  call.recomputed = alive - call.checkpoint;
  if (s.cut_checkpoints) {  // gathered again beside the rank's part
    call.checkpoint = s.whole / s.t;
    call.recomputed = alive;
  }
  // By the time of attention's backward what the MLP kept is gone.
  call.workspace = std::max(mlp.backward, attention.backward - mlp.kept);
  call.forward = alive + s.whole;
  return call;
}

// A layer of a hybrid: one mixer, and its residual sum.
CallBytes mixer_of(const Shapes& s, const Part& mixer) {
  CallBytes call;
  call.output = call.input_gradient = s.wide;
  call.saved = mixer.kept + s.stream;
  call.selective = call.saved - mixer.dropped;
  call.checkpoint = s.cut_checkpoints ? s.whole / s.t : s.wide;
  const double alive = mixer.kept + s.wide;
  call.recomputed = s.cut_checkpoints ? alive : alive - call.checkpoint;
  call.workspace = mixer.backward;
  call.forward = alive + s.whole;
  return call;
}

Part dense_mlp(const Shapes& s) {
  const double width = static_cast<double>(s.model.ffn_hidden_size) / s.mlp_ranks;
  Part mlp;
  mlp.kept = s.norm_kept() + s.read * s.wide + mlp_kept(s, s.tokens, width);
  if (s.drops_first_product) {
    mlp.dropped = s.e * s.tokens * width * (is_gated(s.model.mlp) ? 2 : 1);
  } else {
    // A norm that is a part of the first matmul goes with it; else its output is what the MLP is
    // computed of again.
    if (s.drops.mlp) mlp.dropped = mlp.kept - (s.norm_before_mlp ? s.norm_kept() + s.wide : 0);
    if (s.drops.norms && s.norm_before_mlp) mlp.dropped += s.drops.mlp ? s.wide : s.read * s.wide;
  }
  mlp.backward = mlp_backward(s, width);
  return mlp;
}

Part mixer_part(const Shapes& s, char letter) {
  if (letter == model::kAttentionLetter) return attention_with_norm(s);
  Part part;
  if (letter == model::kMlpLetter) {
    part = dense_mlp(s);
  } else {
    const MambaBytes mamba = mamba_bytes(s.model, s.tokens, s.e, s.heads_ranks);
    part.kept = s.norm_kept() + s.read * s.wide + mamba.kept + s.read * mamba.output_input;
    part.backward = mamba.backward + s.whole + s.wide;
  }
  part.kept += s.mask;
  return part;
}

// `attentions`: of a decoder beside an encoder, to the encoder too.
CallBytes dense_block(const Shapes& s, double attentions = 1) {
  return block_of(s, attention_with_norm(s, attentions), dense_mlp(s));
}

CallBytes expert_block(const Shapes& s, const choice::LayoutChoice& choice) {
  const ModelSpec& m = s.model;
  const double local = s.split ? s.tokens / s.t : s.tokens;
  const double expert_tensor = std::max(1, choice.expert_tensor);
  const auto k = static_cast<double>(m.experts_per_token);
  // Each rank routes its tokens; the ranks that cut an expert gather theirs. Without sequence
  // parallelism the tensor ranks route the same tokens.
  const double routed = s.fullest * local * k * (s.split ? expert_tensor : 1);
  const auto ffn = static_cast<double>(m.expert_ffn_hidden_size > 0 ? m.expert_ffn_hidden_size
                                                                    : m.ffn_hidden_size) /
                   expert_tensor;
  Part mlp;
  mlp.kept = s.norm_kept() + (s.trains ? s.wide : 0);
  mlp.kept += 3 * kFp32Bytes * local * static_cast<double>(m.num_experts);  // the router's scores
  const double moved = s.e * routed * s.h;
  mlp.kept += s.read * moved + mlp_kept(s, routed, ffn);  // dispatched, hidden
  if (s.drops.moe_activation) mlp.dropped += s.read * s.e * routed * ffn;
  if (s.framework.keeps_expert_outputs) mlp.kept += moved;
  mlp.backward = experts_backward(s, routed, ffn) + 2 * moved + s.wide +
                 weight_gradient(s, s.h * ffn * (is_gated(m.mlp) ? 2 : 1) *
                                        static_cast<double>(m.num_experts) / choice.expert);
  if (m.shared_expert_ffn_hidden_size > 0) {
    const double hidden =
        mlp_kept(s, s.tokens, static_cast<double>(m.shared_expert_ffn_hidden_size) / s.mlp_ranks);
    mlp.kept += hidden + (s.trains ? s.wide : 0);
    if (s.drops.shared_experts) mlp.dropped += hidden;
  }
  const double norm_output = s.trains ? s.wide : 0;
  if (s.drops.moe) {  // all but the input
    mlp.dropped = mlp.kept - s.norm_kept() - norm_output;
  }
  if (s.drops.norms) mlp.dropped += norm_output;
  if (model::is_hybrid(m)) {
    mlp.kept += s.mask;
    return mixer_of(s, mlp);
  }
  return block_of(s, attention_with_norm(s), mlp);
}

CallBytes embedding_call(const Shapes& s) {
  CallBytes call;
  call.output = s.wide;
  call.saved = s.wide + s.mask;
  call.selective = call.checkpoint = call.saved;
  call.forward = call.saved + s.whole;
  call.workspace = s.whole;
  return call;
}

// Our engine on GPUs begins each row of logits at a multiple of 16 bytes, for cuBLAS's sake.
double logits_of_token(const Shapes& s, const JobSpec& job, const choice::LayoutChoice& choice) {
  constexpr double kRowBytes = 16;
  const double columns = vocabulary_rows(job, choice);
  if (job.cluster.device == DeviceKind::kCpu || !job.parallel.framework.is_engine()) {
    return columns;
  }
  return std::ceil(columns * s.e / kRowBytes) * kRowBytes / s.e;
}

CallBytes head_call(const Shapes& s, const JobSpec& job, const choice::LayoutChoice& choice) {
  const double logits = s.tokens * logits_of_token(s, job, choice);
  CallBytes call;
  // The final norm's output, and its input where the last block does not keep that.
  const double kept = (s.stream == 0 ? s.norm_kept() : s.stats) + (s.trains ? s.wide : 0);
  framework::LogitBytes logit{2 * s.e, s.e, 2 * s.e};  // the softmax beside the logits
  if (s.framework.fp32_logits && s.e < kFp32Bytes) {
    logit = s.training.fused_loss ? s.framework.fused_logit : s.framework.logit;
  }
  // Layers that predict further tokens have logits of their own, before the head's.
  const double further = static_cast<double>(job.model.num_mtp_layers) * logit.kept * logits;
  call.saved = kept + further + logit.kept * logits;
  call.selective = call.checkpoint = call.saved;
  call.forward = kept + further + (s.split ? s.whole : 0) + logit.forward * logits;
  call.input_gradient = s.wide;
  // Either the logits' gradients, or, once the wider ones are gone, the matmuls' results.
  const double gradients = (logit.backward - logit.kept) * logits;
  const double matmul = (s.e - logit.kept) * logits + s.whole + (s.split ? s.whole : 0) + s.wide +
                        weight_gradient(s, vocabulary_rows(job, choice) * s.h);
  call.workspace = std::max({gradients, matmul, 0.0});
  return call;
}

CallBytes block_call(const Shapes& shapes, const choice::LayoutChoice& choice,
                     const model::LayerSpec& layer) {
  const ModelSpec& m = shapes.model;
  if (layer.kind == model::LayerKind::kCrossBlock) return dense_block(shapes, 2);
  if (model::has_experts(m, layer)) return expert_block(shapes, choice);
  if (!model::is_hybrid(m)) return dense_block(shapes);
  return mixer_of(shapes, mixer_part(shapes, model::layer_letter(m, layer.index - 1)));
}

// What all blocks have in common, and their fullest.
void add_fullest(LayerBytes& layers) {
  const LayerKinds& kinds = *layers.kinds;
  layers.boundary = layers.embedding().call.output;
  for (size_t kind = kinds.first_block(); kind < kinds.end_blocks(); ++kind) {
    const KindBytes& each = layers.of_kind[kind];
    const auto raise = [](double& most, double one) { most = std::max(most, one); };
    if (!kinds.has_embedding()) raise(layers.boundary, each.call.output);
    raise(layers.largest_block_parameters, each.all_parameters());
    raise(layers.trained_block_parameters, each.adds.dense + each.adds.experts);
    raise(layers.frozen_block_bytes, each.adds.frozen_bytes + each.adds.frozen_expert_bytes);
  }
  layers.largest_layer_parameters = std::max(
      {layers.largest_block_parameters, layers.embedding().parameters, layers.head().parameters});
}

uint64_t bits(int64_t value, int width) {
  return static_cast<uint64_t>(value) & ((uint64_t{1} << width) - 1);
}

}  // namespace

CallBytes call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                     const model::LayerSpec& layer, bool is_frozen) {
  if (runs_in_engine(job) || model::is_list(job.model)) {
    return engine_call_bytes(job, choice, layer);
  }
  CallBytes call;
  if (layer.kind == model::LayerKind::kEmbedding) {
    call = embedding_call({job, choice, trains_blocks(job)});
  } else if (model::makes_loss(layer.kind)) {
    call = head_call({job, choice, trains_projection(job)}, job, choice);
  } else {
    call = block_call({job, choice, trains_blocks(job) && !is_frozen}, choice, layer);
  }
  if (model::freezes_weights(job)) fine_tune(call, job, choice, layer, is_frozen);
  return call;
}

LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                       std::shared_ptr<const LayerKinds> kinds) {
  LayerBytes layers;
  layers.kinds = std::move(kinds);
  for (size_t i = 0; i < layers.kinds->size(); ++i) {
    const LayerKinds::Kind& kind = (*layers.kinds)[i];
    KindBytes& bytes = layers.of_kind.emplace_back();
    count_parameters(bytes, job, choice, kind.layer);
    if (model::freezes_weights(job)) {
      freeze_parameters(bytes, job, choice, kind.layer, kind.is_frozen);
    }
    bytes.call = call_bytes(job, choice, kind.layer, kind.is_frozen);
  }
  add_fullest(layers);
  if (runs_in_engine(job) || model::is_list(job.model)) return layers;
  layers.held = held_by_messages(job, choice, (*layers.kinds)[layers.kinds->first_block()].layer,
                                 Shapes(job, choice).whole);
  return layers;
}

LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice) {
  return layer_bytes(job, choice, std::make_shared<LayerKinds>(job));
}

LayerKey layer_key(const JobSpec& job, const choice::LayoutChoice& choice) {
  uint64_t key = bits(choice.tensor, 10);
  key = key << 10 | bits(choice.context, 10);
  key = key << 12 | bits(choice.expert, 12);
  key = key << 8 | bits(choice.expert_tensor, 8);
  key = key << 15 | bits(choice.micro_batch, 15);
  // Five precisions by three kinds of recompute.
  key =
      key << 4 |
      bits(3 * static_cast<int64_t>(choice.precision) + static_cast<int64_t>(choice.recompute), 4);
  key = key << 1 | bits(choice.sequence_parallel, 1);
  key = key << 3 | bits(static_cast<int64_t>(choice.placement), 3);
  key = key << 1 | bits(choice.pipeline > 1, 1);
  const bool crosses = framework::framework_model(job).pipeline_crossing_s > 0 &&
                       choice.pipeline > 1 && boundaries_between_hosts(choice, job) > 0;
  const int64_t casts = casts_weights(job, choice) ? choice.microbatches : 0;
  return {key, static_cast<uint64_t>(casts) << 1 | (crosses ? 1 : 0)};
}

}  // namespace smp::cost
