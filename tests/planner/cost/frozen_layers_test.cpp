#include "cost/frozen_layers.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "memory/stage_terms.h"
#include "plan/model_samples.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"
#include "smp/planner/memory/memory_estimate.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::cost;
using namespace smp::memory;

namespace {

// The block of docs/memory.md: 256 wide, 8 heads and 4 KV heads that are repeated, 688 in the MLP;
// two sequences of 128 tokens.
constexpr double kTokens = 256, kHidden = 256, kFfn = 688;

JobSpec tiny_job(const char* framework = "fsdp2") {
  JobSpec job;
  job.model = llama_sized(4, 256, 8, 4, 688, 1000);
  job.cluster.device = DeviceKind::kCuda;
  job.cluster.processes_per_host = 8;
  job.cluster.memory_per_process_bytes = int64_t{16} << 30;
  job.cluster.half_flops_per_s = 312e12;
  job.cluster.fp32_flops_per_s = 19.5e12;
  job.cluster.multiprocessors = 108;
  job.cluster.kernel_launch_s = 4e-6;
  job.cluster.memory_bytes_per_s = 1.5e12;
  job.cluster.intra_host_bytes_per_s = 200e9;
  job.cluster.inter_host_bytes_per_s = 5e9;
  job.training.sequence_length = 128;
  job.parallel.framework = framework::framework_named(framework);
  return job;
}

JobSpec adapted_job(int64_t rank, const char* framework = "fsdp2") {
  JobSpec job = tiny_job(framework);
  job.training.lora.rank = rank;
  return job;
}

const LayoutChoice kTwoSamples{.precision = Precision::kFp32, .micro_batch = 2};

double saved_beside_output(const JobSpec& job, const LayoutChoice& choice = kTwoSamples) {
  const CallBytes block = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
  return block.saved - block.output;
}

StageParameters held(const JobSpec& job, const LayoutChoice& choice) {
  const LayerBytes layers = layer_bytes(job, choice);
  return parameters_of(layers, stage_holds(*layers.kinds, choice, 0));
}

MemoryEstimate estimate(const JobSpec& job, const LayoutChoice& choice) {
  return estimate_memory(job, choice, layer_bytes(job, choice));
}

}  // namespace

TEST_CASE("a block keeps what PyTorch's autograd saves of it") {
  // Counted by torch.autograd.graph.saved_tensors_hooks (torch 2.11, CPU, fp32): docs/memory.md.
  CHECK(saved_beside_output(adapted_job(8)) == 4'720'640);
  CHECK(saved_beside_output(tiny_job()) == 5'187'584 - 2 * 4 * kTokens * kHidden);
  // Without adapters: queries, keys, values, the core's output and its sums; the residual sum;
  // gate, up and silu(gate); two norms' statistics.
  JobSpec frozen = tiny_job();
  frozen.training.frozen = {"layers"};
  const CallBytes block = layer_bytes(frozen, kTwoSamples).of(model::LayerKind::kBlock, true).call;
  CHECK(block.saved - block.output == 3'434'496);
  const double by_hand = 4 * kTokens * (5 * kHidden + 8 + 2 + 3 * kFfn);
  CHECK(block.saved - block.output == by_hand);
  // Adapters: both norms' outputs, the MLP's product, and A x of seven.
  CHECK(saved_beside_output(adapted_job(8)) ==
        by_hand + 4 * kTokens * (2 * kHidden + kFfn + 7 * 8));
}

TEST_CASE("in 16 bits a norm of several kernels keeps its input in fp32 and no other copy of it") {
  // Counted as above (bf16, the norm of Hugging Face's Llama): of the residual stream nothing else.
  LayoutChoice choice = kTwoSamples;
  choice.precision = Precision::kBf16;
  const CallBytes block = layer_bytes(adapted_job(8), choice).of(model::LayerKind::kBlock).call;
  CHECK(block.saved == 2'758'656);
  CHECK(block.forward > block.saved + block.output);
  // Fused norms keep the stream itself.
  JobSpec compiled = adapted_job(8);
  compiled.training.compiled = true;
  const double silu = 2 * kTokens * kFfn;
  CHECK(layer_bytes(compiled, choice).of(model::LayerKind::kBlock).call.saved ==
        2'758'656 - silu - 2 * (4 - 2) * kTokens * kHidden);
}

TEST_CASE("an adapter keeps its input once for all that read it, with dropout each its own") {
  JobSpec job = adapted_job(8);
  const auto with = [&](const std::vector<std::string>& targets) {
    job.training.lora.targets = targets;
    return saved_beside_output(job);
  };
  const double none = 3'434'496, wide = 4 * kTokens * kHidden, small = 4 * kTokens * 8;
  CHECK(with({"attention.q"}) == none + wide + small);
  CHECK(with({"attention.q", "attention.v"}) == none + wide + 2 * small);
  CHECK(with({"attention.output"}) == none + small);  // flash attention keeps its output anyway
  CHECK(with({"mlp.down"}) == none + 4 * kTokens * kFfn + small);
  job.training.lora.dropout = 0.1;  // and a mask of a byte for each element
  CHECK(with({"attention.q", "attention.v"}) == none + 2 * (wide * 5 / 4) + 2 * small);
  CHECK(with({"attention.output"}) == none + wide * 5 / 4 + small);
  job.training.lora.dropout = 0;
  job.training.attention = AttentionKind::kUnfused;
  const double unfused = with({"mlp.up"});
  CHECK(with({"mlp.up", "attention.output"}) == unfused + wide + small);
}

TEST_CASE("frozen weights have no state but themselves, adapters have all") {
  const JobSpec job = adapted_job(4, "megatron-core");
  const LayoutChoice choice{.precision = Precision::kBf16};
  const double base = model::parameter_counts(job.model).total();
  const double adapters = 4.0 * 4 * ((256 + 256) + 2 * (256 + 128) + (256 + 256) + 3 * (256 + 688));
  const StageParameters parameters = held(job, choice);
  CHECK(parameters.frozen == base);
  CHECK(parameters.dense == adapters);
  CHECK(parameters.frozen_bytes == 2 * base);
  const MemoryEstimate memory = estimate(job, choice);
  CHECK(memory[Term::kFrozenWeights] == 2 * base);
  CHECK(memory[Term::kWeights] == 2 * adapters);
  CHECK(memory[Term::kGradients] == 4 * adapters);
  CHECK(memory[Term::kMasterWeights] == 4 * adapters);
  CHECK(memory[Term::kMomentum] == 4 * adapters);
  CHECK(memory[Term::kVariance] == 4 * adapters);
  // Sharding of parameters shards frozen ones too; that of optimizer states does not.
  LayoutChoice sharded{.shard = 8, .sharding = Sharding::kParameters};
  CHECK(estimate(adapted_job(4), sharded)[Term::kFrozenWeights] == 2 * base / 8);
  sharded.sharding = Sharding::kOptimizerState;
  CHECK(estimate(adapted_job(4), sharded)[Term::kFrozenWeights] == 2 * base);
  CHECK(estimate(adapted_job(4), sharded)[Term::kMomentum] == 4 * adapters / 8);
}

TEST_CASE("tensor ranks hold their parts of frozen matrices and of adapters") {
  const JobSpec job = adapted_job(4, "megatron-core");
  LayoutChoice choice{.tensor = 4};
  // q, k, v, gate and up: A whole, B cut; output and down: A cut, B whole.
  const double cut = (256 + 2 * 128 + 256 + 3 * 688) / 4.0;
  const double whole = 3 * 256 + 256 + 3 * 256;
  CHECK(held(job, choice).dense == 4.0 * 4 * (cut + whole));
  const StageParameters full = held(tiny_job("megatron-core"), choice);
  CHECK(held(job, choice).frozen == full.dense);
  CHECK(full.frozen == 0);
}

TEST_CASE("quantized matrices take 4.5, 4.127 or 8 bits, and 16 while they run") {
  CHECK(quantized_bytes(QuantizedKind::kNf4) == 0.5625);
  CHECK(8 * (quantized_bytes(QuantizedKind::kNf4Double) - 0.5) ==
        doctest::Approx(0.127).epsilon(0.001));
  CHECK(quantized_bytes(QuantizedKind::kFp8) == 1);
  CHECK(quantized_bytes(QuantizedKind::kInt8) == 1);
  JobSpec job = adapted_job(4);
  const LayoutChoice choice{.precision = Precision::kBf16};
  const StageParameters plain = held(job, choice);
  const CallBytes before = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
  const LayerSeconds at_16_bits = layer_seconds(job, choice);
  job.training.lora.quantized = QuantizedKind::kNf4;
  const StageParameters quantized = held(job, choice);
  const double matrices = 4.0 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 688);
  CHECK(quantized.frozen == plain.frozen);
  CHECK(quantized.frozen_bytes == plain.frozen_bytes - (2 - 0.5625) * matrices);
  CHECK(quantized.dense == plain.dense);
  // Norms, embedding and head are not quantized.
  const CallBytes after = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
  CHECK(after.workspace == before.workspace + 2.0 * 256 * 688);
  CHECK(after.saved == before.saved);
  // Read in 4.5 bits, written in 16.
  const LayerSeconds dequantized = layer_seconds(job, choice);
  CHECK(dequantized.of(model::LayerKind::kBlock).memory_forward >
        at_16_bits.of(model::LayerKind::kBlock).memory_forward);
  CHECK(dequantized.of(model::LayerKind::kBlock).memory_backward >
        at_16_bits.of(model::LayerKind::kBlock).memory_backward);
  CHECK(dequantized.of(model::LayerKind::kHead).memory_forward ==
        at_16_bits.of(model::LayerKind::kHead).memory_forward);
}

TEST_CASE("memory grows with the rank and never exceeds that of full training") {
  for (const char* framework : {"fsdp2", "megatron-core", "deepspeed"}) {
    for (const Sharding sharding :
         {Sharding::kNone, Sharding::kOptimizerState, Sharding::kParameters}) {
      if (std::string_view(framework) == "megatron-core" && sharding == Sharding::kParameters)
        continue;
      LayoutChoice choice{.sharding = sharding, .micro_batch = 2, .microbatches = 4};
      (sharding == Sharding::kNone ? choice.replica : choice.shard) = 8;
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        choice.recompute = recompute;
        const double full = estimate(tiny_job(framework), choice).peak_bytes;
        double last = 0;
        for (const int64_t rank : {1, 4, 16}) {
          const double adapted = estimate(adapted_job(rank, framework), choice).peak_bytes;
          CHECK(adapted > last);
          CHECK(adapted < full);
          last = adapted;
        }
        double frozen = full;
        for (const char* layers : {"layers.0", "layers.0-2", "layers"}) {
          JobSpec job = tiny_job(framework);
          job.training.frozen = {"embedding", layers};
          const double less = estimate(job, choice).peak_bytes;
          CHECK(less <= frozen);
          frozen = less;
        }
      }
    }
  }
}

TEST_CASE("layers before the first trained one keep nothing and have no backward") {
  JobSpec job = tiny_job();
  job.training.frozen = {"embedding", "layers.0-1"};
  const LayoutChoice choice{.precision = Precision::kBf16};
  const LayerBytes bytes = layer_bytes(job, choice);
  CHECK(bytes.of(model::LayerKind::kBlock, true).call.saved == 0);
  CHECK(bytes.embedding().call.saved == 0);
  CHECK(bytes.of(model::LayerKind::kBlock).call.saved ==
        layer_bytes(tiny_job(), choice).of(model::LayerKind::kBlock).call.saved);
  const LayerSeconds seconds = layer_seconds(job, choice);
  CHECK(seconds.of(model::LayerKind::kBlock, true).backward() == 0);
  CHECK(seconds.of(model::LayerKind::kBlock, true).forward() > 0);
  CHECK(seconds.of(model::LayerKind::kEmbedding).backward() == 0);
  CHECK(seconds.of(model::LayerKind::kBlock).backward() > 0);
  // Only the embedding is frozen: its output is the first block's input, whose norm is trained.
  job.training.frozen = {"embedding"};
  CHECK(layer_bytes(job, choice).embedding().call.saved ==
        layer_bytes(job, choice).embedding().call.output);
  // Gradients pass through frozen layers to a trained embedding.
  job.training.frozen = {"layers.0-1"};
  CHECK(layer_bytes(job, choice).of(model::LayerKind::kBlock, true).call.saved > 0);
  CHECK(layer_seconds(job, choice).of(model::LayerKind::kBlock, true).backward() > 0);
  CHECK(held(job, choice).frozen ==
        2 * layer_bytes(job, choice).of(model::LayerKind::kBlock).parameters);
}

TEST_CASE("a tied projection is frozen with the embedding") {
  JobSpec job = tiny_job("megatron-core");
  job.model.tied_embeddings = true;
  job.training.frozen = {"head"};
  CHECK(trains_projection(job));
  CHECK(held(job, {}).frozen == 256);  // the final norm
  job.training.frozen = {"embedding"};
  CHECK_FALSE(trains_projection(job));
  CHECK(held(job, {}).frozen == 1000.0 * 256);
  const LayoutChoice two{.pipeline = 2};
  const LayerBytes layers = layer_bytes(job, two);
  const StageParameters last = parameters_of(layers, stage_holds(*layers.kinds, two, 1));
  CHECK(last.frozen == 1000.0 * 256);  // its copy
}

TEST_CASE("a backward with frozen matrices leaves out their gradients, and adapters add kernels") {
  const LayoutChoice choice{.precision = Precision::kBf16};
  JobSpec large = tiny_job("megatron-core");  // where matmuls count, and not launches
  large.model = llama2_7b();
  large.training.sequence_length = 4096;
  large.cluster.kernel_launch_s = 0;
  JobSpec adapted = large;
  adapted.training.lora.rank = 8;
  const CallSeconds full = layer_seconds(large, choice).of(model::LayerKind::kBlock);
  const CallSeconds tuned = layer_seconds(adapted, choice).of(model::LayerKind::kBlock);
  CHECK(tuned.matmul_forward > full.matmul_forward);
  CHECK(tuned.matmul_forward < 1.1 * full.matmul_forward);
  CHECK(tuned.matmul_backward < 0.75 * full.matmul_backward);
  CHECK(tuned.weights_share == 0);
  // A small block is bound by launches: adapters make it slower.
  const CallSeconds small =
      layer_seconds(tiny_job("megatron-core"), choice).of(model::LayerKind::kBlock);
  const CallSeconds small_adapted =
      layer_seconds(adapted_job(8, "megatron-core"), choice).of(model::LayerKind::kBlock);
  CHECK(small_adapted.forward() > small.forward());
}

TEST_CASE("stages count the frozen blocks that they hold") {
  JobSpec job = tiny_job("megatron-core");
  job.model.num_layers = 8;
  LayoutChoice choice{.pipeline = 4};
  const auto holds = [&](int64_t frozen, int64_t stage) {
    job.training.frozen = {"layers.0-" + std::to_string(frozen - 1)};
    return stage_holds(LayerKinds(job), choice, stage);
  };
  const auto frozen_on = [&](int64_t frozen, int64_t stage) {
    const size_t kind = 1;  // behind the embedding
    return holds(frozen, stage).of_kind[kind];
  };
  CHECK(frozen_on(3, 0) == 2);
  CHECK(frozen_on(3, 1) == 1);
  CHECK(frozen_on(3, 2) == 0);
  CHECK(holds(3, 1).blocks == 2);
  // Virtual stages: chunks 0 and 2 are the first stage's.
  choice = {.pipeline = 2, .virtual_stages = 2, .schedule = PipelineKind::kVirtual};
  CHECK(frozen_on(3, 0) == 2);
  CHECK(frozen_on(3, 1) == 1);
  CHECK(frozen_on(6, 0) == 4);
  CHECK(holds(6, 0).frozen_chunks == 2);
}
