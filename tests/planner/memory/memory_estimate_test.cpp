#include "smp/planner/memory/memory_estimate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <utility>

#include "memory/stage_terms.h"
#include "plan/plan_samples.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/model/layers.h"
#include "smp/planner/memory/memory_model.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::cost;
using namespace smp::memory;

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

JobSpec on_accelerators(const ModelSpec& model, int64_t sequence, const char* framework) {
  JobSpec job;
  job.model = model;
  job.cluster.device = DeviceKind::kCuda;
  job.cluster.processes_per_host = 8;
  job.training.sequence_length = sequence;
  job.parallel.framework = framework::framework_named(framework);
  return job;
}

MemoryEstimate estimate(const JobSpec& job, const LayoutChoice& choice) {
  return estimate_memory(job, choice, layer_bytes(job, choice));
}

double states(const MemoryEstimate& estimate) {
  return estimate[Term::kWeights] + estimate[Term::kGradients] + estimate[Term::kGradientCopy] +
         estimate[Term::kMasterWeights] + estimate[Term::kMomentum] + estimate[Term::kVariance];
}

// A formula such as "(1,024 B x 3 layers + 8 B x 5 layers of experts) x 2 microbatches live / 4"
// as a number: words are left out, products go before sums.
double worked_out(std::string_view text) {
  double sum = 0, product = 1;
  char sign = 'x';
  while (!text.empty()) {
    const char first = text.front();
    if (first == '(') {
      const size_t end = text.find(')');
      product *= worked_out(text.substr(1, end - 1));
      text.remove_prefix(end + 1);
    } else if (std::isdigit(static_cast<unsigned char>(first)) != 0) {
      const size_t end = std::min(text.find_first_not_of("0123456789.,"), text.size());
      std::string digits(text.substr(0, end));
      std::erase(digits, ',');
      product *= sign == '/' ? 1 / std::stod(digits) : std::stod(digits);
      text.remove_prefix(end);
    } else {
      if (first == '+' || text.starts_with("- "))
        sum += std::exchange(product, first == '+' ? 1 : -1);
      if (first == '+' || first == '/') sign = first;
      if (text.starts_with("x ")) sign = 'x';
      text.remove_prefix(1);
    }
  }
  return sum + product;
}

}  // namespace

TEST_CASE("a block keeps 34sbh + 5as2b, cut as by Korthikanti et al. 2022, table 2") {
  ModelSpec model = gpt2_sized(2, 4096, 32);
  model.hidden_dropout = model.attention_dropout = 0.1;
  const double s = 2048, b = 4, h = 4096, a = 32, sbh = s * b * h;
  JobSpec job = on_accelerators(model, 2048, "megatron-core");
  LayoutChoice choice{.micro_batch = 4};
  const double statistics = 2 * 2 * 4 * s * b;  // fp32 mean and deviation of two norms
  const double scores = 5 * a * s * s * b;
  job.training.attention = AttentionKind::kUnfused;
  for (const int32_t t : {1, 2, 4, 8}) {
    choice.tensor = t;
    choice.sequence_parallel = false;
    const CallBytes open = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
    CHECK(open.saved - statistics == doctest::Approx(sbh * (10 + 24.0 / t) + scores / t));
    CHECK(open.selective - statistics == doctest::Approx(sbh * (10 + 24.0 / t)));
    CHECK(open.checkpoint == doctest::Approx(2 * sbh));
    choice.sequence_parallel = t > 1;
    const CallBytes split = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
    CHECK(split.saved - statistics / t == doctest::Approx((34 * sbh + scores) / t));
    CHECK(split.selective - statistics / t == doctest::Approx(34 * sbh / t));
  }
}

TEST_CASE("flash attention keeps a row's sum: fewer KV heads and a gated MLP keep what they make") {
  ModelSpec model = llama2_7b();
  model.num_kv_heads = 8;
  model.ffn_hidden_size = 14336;  // 3.5 h
  const JobSpec job = on_accelerators(model, 4096, "megatron-core");
  const CallBytes block = layer_bytes(job, {}).of(model::LayerKind::kBlock).call;
  const double sbh = 4096.0 * 4096;
  // 12h + 4hg/a + 6f, and 4 bytes of each head's row and of two norms' rows.
  CHECK(block.saved == doctest::Approx(sbh * (12 + 4 * 0.25 + 6 * 3.5) + 4 * 4096.0 * (32 + 2)));
}

TEST_CASE("a tensor group that partitions checkpoints keeps a part each, and gathers one again") {
  JobSpec job = on_accelerators(llama2_7b(), 2048, "deepspeed-2021");
  LayoutChoice choice{.tensor = 4, .recompute = Recompute::kFull};
  const double sbh = 2048.0 * 4096;
  const CallBytes whole = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
  CHECK(whole.checkpoint == doctest::Approx(2 * sbh));
  CHECK(whole.recomputed == doctest::Approx(whole.saved - 2 * sbh));
  const MemoryEstimate before = estimate(job, choice);
  job.parallel.partition_activations = true;
  const CallBytes cut = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
  CHECK(cut.saved == whole.saved);
  CHECK(cut.checkpoint == doctest::Approx(2 * sbh / 4));
  CHECK(cut.recomputed == doctest::Approx(whole.saved));
  const MemoryEstimate after = estimate(job, choice);
  CHECK(before[Term::kCheckpoints] - after[Term::kCheckpoints] ==
        doctest::Approx(32 * 2 * sbh * 3 / 4));
  choice.sequence_parallel = true;  // cuts it already
  CHECK(layer_bytes(job, choice).of(model::LayerKind::kBlock).call.recomputed ==
        doctest::Approx(layer_bytes(job, choice).of(model::LayerKind::kBlock).call.saved -
                        2 * sbh / 4));
}

TEST_CASE("in fp8 matmuls keep their inputs in bytes, and weights a copy and its transpose") {
  JobSpec job = on_accelerators(llama2_7b(), 4096, "megatron-core");
  LayoutChoice choice{.precision = Precision::kBf16};
  const CallBytes wide = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
  const double sixteen = estimate(job, choice)[Term::kWeights];
  choice.precision = Precision::kFp8;
  // Of both norms' outputs and the MLP's product half; attention's output once more.
  const double sbh = 4096.0 * 4096, sbf = 4096.0 * 11008;
  CHECK(wide.saved - layer_bytes(job, choice).of(model::LayerKind::kBlock).call.saved ==
        doctest::Approx(2 * sbh + sbf - sbh));
  const LayerBytes layers = layer_bytes(job, choice);
  CHECK(estimate(job, choice)[Term::kWeights] ==
        doctest::Approx(sixteen + 2 * 32 * layers.of(model::LayerKind::kBlock).parameters));
  job.training.fp8_parameters = true;
  CHECK(estimate(job, choice)[Term::kWeights] == doctest::Approx(sixteen));
}

TEST_CASE(
    "in NVFP4 an element has 4 bits and its share of a scale, in copies or in weights' stead") {
  JobSpec job = on_accelerators(llama2_7b(), 4096, "megatron-core");
  LayoutChoice choice{.precision = Precision::kBf16};
  const CallBytes wide = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
  const double sixteen = estimate(job, choice)[Term::kWeights];
  choice.precision = Precision::kNvfp4;
  constexpr double kEach = 0.5 + 1.0 / 16;
  const double sbh = 4096.0 * 4096, sbf = 4096.0 * 11008;
  CHECK(wide.saved - layer_bytes(job, choice).of(model::LayerKind::kBlock).call.saved ==
        doctest::Approx((2 - kEach) * (2 * sbh + sbf) - kEach * sbh));
  const double blocks = 32 * layer_bytes(job, choice).of(model::LayerKind::kBlock).parameters;
  CHECK(estimate(job, choice)[Term::kWeights] == doctest::Approx(sixteen + 2 * kEach * blocks));
  job.training.fp8_parameters = true;
  CHECK(estimate(job, choice)[Term::kWeights] ==
        doctest::Approx(sixteen + (2 * kEach - 2) * blocks));
}

TEST_CASE("the optimizer's state has the bytes of its types") {
  JobSpec job = on_accelerators(llama2_7b(), 4096, "megatron-core");
  const LayoutChoice choice{.precision = Precision::kBf16};
  const MemoryEstimate usual = estimate(job, choice);
  const double each = usual[Term::kMasterWeights] / 4;
  OptimizerSpec& optimizer = job.training.optimizer;
  optimizer.master_weights = MasterKind::kRemainder;
  optimizer.momentum_dtype = MomentKind::kBf16;
  optimizer.variance_dtype = MomentKind::kFp8;
  const MemoryEstimate narrow = estimate(job, choice);
  CHECK(narrow[Term::kMasterWeights] == doctest::Approx(2 * each));
  CHECK(narrow[Term::kMomentum] == doctest::Approx(2 * each));
  CHECK(narrow[Term::kVariance] == doctest::Approx(each));
  CHECK(narrow[Term::kWeights] == usual[Term::kWeights]);
  optimizer.momentum_dtype = MomentKind::kInt8;
  CHECK(estimate(job, choice)[Term::kMomentum] == doctest::Approx((1 + 4.0 / 256) * each));
  // FSDP's shards are fp32 themselves, unless all is in 16 bits.
  job.parallel.framework = framework::framework_named("fsdp2");
  optimizer.momentum_dtype = MomentKind::kFp32;
  optimizer.master_weights = MasterKind::kFp32;
  CHECK(estimate(job, choice)[Term::kWeights] == doctest::Approx(4 * each));
  optimizer.master_weights = MasterKind::kNone;
  const MemoryEstimate half = estimate(job, choice);
  CHECK(half[Term::kWeights] == doctest::Approx(2 * each));
  CHECK(half[Term::kGradients] == doctest::Approx(2 * each));
  CHECK(half[Term::kMasterWeights] == 0);
}

TEST_CASE("selective recomputation drops what its modules keep, by hand") {
  ModelSpec model = llama2_7b();
  model.num_experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden_size = 1024;
  model.shared_expert_ffn_hidden_size = 2048;
  model.first_dense_layers = 1;
  JobSpec job = on_accelerators(model, 4096, "nemo");
  const LayoutChoice choice{.precision = Precision::kBf16, .recompute = Recompute::kSelective};
  const auto dropped = [&](std::vector<std::string> modules, bool experts) {
    job.parallel.recompute_modules = std::move(modules);
    const LayerBytes layers = layer_bytes(job, choice);
    const CallBytes& call = experts ? layers.of(model::LayerKind::kMoeBlock).call
                                    : layers.of(model::LayerKind::kBlock).call;
    return call.saved - call.selective;
  };
  const double s = 4096, h = 4096;
  const double log_sum = 4 * s * 32;
  CHECK(dropped({}, false) == doctest::Approx(log_sum));
  CHECK(dropped({"core_attn"}, true) == doctest::Approx(log_sum));
  // The norm is a part of the MLP's first matmul: its output, its rows' scales, gate, up, product.
  CHECK(dropped({"mlp"}, false) == doctest::Approx(2 * s * h + 4 * s + 2 * s * 3 * 11008));
  CHECK(dropped({"mlp"}, true) == 0);
  // A norm's output, and the scales of its rows.
  CHECK(dropped({"layernorm"}, true) == doctest::Approx(2 * s * h + 4 * s));
  CHECK(dropped({"layernorm"}, false) == 0);
  CHECK(dropped({"moe_act"}, true) == doctest::Approx(2 * s * 2 * 1024));
  CHECK(dropped({"shared_experts"}, true) == doctest::Approx(2 * s * 3 * 2048));
  // Router's scores, the experts of each token and their weights, dispatched tokens, gate, up and
  // product of experts, and of the shared one.
  CHECK(dropped({"moe"}, true) ==
        doctest::Approx(12 * s * 8 + 2 * 8 * s + 2 * 2 * s * (h + 3 * 1024) + 2 * s * 3 * 2048));
  CHECK(dropped({"moe", "layernorm"}, true) ==
        doctest::Approx(dropped({"moe"}, true) + 2 * s * h + 4 * s));
  // Without Transformer Engine each norm is a module of its own, and the MLP is checkpointed behind
  // it.
  job = on_accelerators(model, 4096, "megatron-core-local");
  CHECK(dropped({"layernorm"}, false) == doctest::Approx(2 * (2 * s * h + 4 * s)));
  CHECK(dropped({"layernorm"}, true) == doctest::Approx(2 * (2 * s * h + 4 * s)));
  CHECK(dropped({"mlp"}, false) == doctest::Approx(2 * s * 3 * 11008));
  CHECK(dropped({"mlp", "layernorm"}, false) ==
        doctest::Approx(2 * s * 3 * 11008 + 2 * (2 * s * h + 4 * s)));
  // Of a decoder's block the norm before its own attention and the one before the MLP.
  job.model.num_experts = job.model.experts_per_token = 0;
  job.model.shared_expert_ffn_hidden_size = job.model.first_dense_layers = 0;
  job.model.stack = Stack::kEncoderDecoder;
  job.model.decoder_layers = 2;
  job.parallel.recompute_modules = {"layernorm"};
  const CallBytes cross = layer_bytes(job, choice).of(model::LayerKind::kCrossBlock).call;
  CHECK(cross.saved - cross.selective == doctest::Approx(2 * (2 * s * h + 4 * s)));
}

TEST_CASE("DeepSpeed's ZeRO-3 keeps the blocks that it needs again within 1e9 elements") {
  const JobSpec job = on_accelerators(llama2_7b(), 4096, "deepspeed");
  LayoutChoice choice{.shard = 8, .sharding = Sharding::kParameters};
  const LayerBytes layers = layer_bytes(job, choice);
  const double bucket = 4096.0 * 4096;
  // Each later block is gathered for its forward and its backward: (1e9 - head) / 2 blocks.
  const double further = std::floor((1e9 - layers.head().parameters) /
                                    (2 * layers.of(model::LayerKind::kBlock).parameters));
  CHECK(further == 2);
  CHECK(estimate(job, choice)[Term::kGatheredWeights] ==
        doctest::Approx(2 * (3 * layers.of(model::LayerKind::kBlock).parameters + bucket)));
  CHECK(estimate(job, choice)[Term::kBuckets] == doctest::Approx(2 * bucket));
  CHECK(estimate(job, choice)[Term::kUnreducedGradients] == doctest::Approx(2 * bucket));
  choice.micro_batch = 8;
  choice.recompute = Recompute::kFull;  // and once more to compute its forward again
  CHECK(estimate(job, choice)[Term::kGatheredWeights] ==
        doctest::Approx(2 * (2 * layers.of(model::LayerKind::kBlock).parameters + bucket)));
}

TEST_CASE("what a gated MLP's backward needs: the widest of its three steps") {
  const JobSpec job = on_accelerators(llama2_7b(), 4096, "megatron-core");
  // The activation's gradient, twice as wide as the MLP; what it read is gone.
  CHECK(layer_bytes(job, {}).of(model::LayerKind::kBlock).call.workspace ==
        doctest::Approx(2 * 2 * 4096.0 * 11008));
}

TEST_CASE(
    "logits are held in 16 bits and fp32 while the loss is made, in fp32 until its backward") {
  const JobSpec job = on_accelerators(llama2_7b(), 4096, "megatron-core");
  LayoutChoice choice{.tensor = 2};
  const CallBytes head = layer_bytes(job, choice).head().call;
  const double logits = 4096.0 * 16000, norm = 4096.0 * 4096 * 2 + 4 * 4096.0;
  CHECK(head.forward == doctest::Approx(6 * logits + norm));
  CHECK(head.saved == doctest::Approx(4 * logits + norm));
  // Its norm of several kernels keeps an fp32 copy of its input and the rows before their weight.
  JobSpec fused = on_accelerators(llama2_7b(), 4096, "fsdp2");
  fused.training.fused_loss = true;
  const double copies = 4096.0 * 4096 * (4 + 2);
  CHECK(layer_bytes(fused, choice).head().call.forward ==
        doctest::Approx(2 * logits + norm + copies));
}

TEST_CASE("our engine on GPUs begins each row of logits at a multiple of 16 bytes") {
  ModelSpec odd = llama2_7b();
  odd.vocab_size = 31'999;
  for (const Precision precision : {Precision::kBf16, Precision::kFp32, Precision::kFp64}) {
    const LayoutChoice choice{.precision = precision};
    const auto kept = [&](const ModelSpec& model, const char* framework) {
      return layer_bytes(on_accelerators(model, 4096, framework), choice).head().call.saved;
    };
    CHECK(kept(odd, "smp") == kept(llama2_7b(), "smp"));
    CHECK(kept(odd, "megatron-core") < kept(llama2_7b(), "megatron-core"));
  }
}

TEST_CASE("states of ZeRO 0 to 3 by hand, in each framework's bytes") {
  const double parameters = 6'738'415'616;
  const auto per_parameter = [&](const char* framework, Precision precision, Sharding sharding,
                                 int32_t z) {
    const JobSpec job = on_accelerators(llama2_7b(), 2048, framework);
    LayoutChoice choice{.shard = z, .replica = 8 / z, .sharding = sharding, .microbatches = 2};
    choice.precision = precision;
    return states(estimate(job, choice)) / parameters;
  };
  const Precision bf16 = Precision::kBf16, fp16 = Precision::kFp16;
  CHECK(per_parameter("megatron-core", bf16, Sharding::kNone, 1) == doctest::Approx(18));
  CHECK(per_parameter("megatron-core", bf16, Sharding::kOptimizerState, 8) ==
        doctest::Approx(6 + 12 / 8.0));
  CHECK(per_parameter("megatron-core", bf16, Sharding::kOptimizerState, 4) ==
        doctest::Approx(6 + 12 / 4.0));
  CHECK(per_parameter("deepspeed-2021", bf16, Sharding::kOptimizerState, 8) ==
        doctest::Approx(4 + 4 + 12 / 8.0));
  CHECK(per_parameter("deepspeed", bf16, Sharding::kOptimizerState, 8) ==
        doctest::Approx(4 + 12 / 8.0));
  CHECK(per_parameter("deepspeed", fp16, Sharding::kOptimizerState, 8) ==
        doctest::Approx(4 + 12 / 8.0));
  CHECK(per_parameter("deepspeed", fp16, Sharding::kGradients, 8) == doctest::Approx(2 + 14 / 8.0));
  CHECK(per_parameter("deepspeed", fp16, Sharding::kParameters, 8) == doctest::Approx(16 / 8.0));
  CHECK(per_parameter("fsdp2", bf16, Sharding::kParameters, 8) == doctest::Approx(16 / 8.0));
  CHECK(per_parameter("smp", bf16, Sharding::kParameters, 8) == doctest::Approx(18 / 8.0));
  CHECK(per_parameter("smp", fp16, Sharding::kNone, 1) == doctest::Approx(20));
  CHECK(per_parameter("smp", Precision::kFp32, Sharding::kNone, 1) == doctest::Approx(16));
}

TEST_CASE(
    "the fp32 sum beside bf16 gradients lives through the backward pass, Megatron's copy not") {
  LayoutChoice choice{.micro_batch = 4, .microbatches = 2};
  const MemoryEstimate sums =
      estimate(on_accelerators(llama2_7b(), 4096, "deepspeed-2021"), choice);
  CHECK(sums.phase != PeakPhase::kStep);
  CHECK(sums[Term::kGradientCopy] == doctest::Approx(4 * 6'738'415'616.0));
  // Today's has it where it is asked for.
  JobSpec today = on_accelerators(llama2_7b(), 4096, "deepspeed");
  CHECK(estimate(today, choice)[Term::kGradientCopy] == 0);
  today.training.accumulate_gradients_in_fp32 = true;
  CHECK(estimate(today, choice)[Term::kGradientCopy] == sums[Term::kGradientCopy]);
  choice.precision = Precision::kFp16;
  const MemoryEstimate copies =
      estimate(on_accelerators(llama2_7b(), 4096, "megatron-core"), choice);
  CHECK(copies.phase != PeakPhase::kStep);
  CHECK(copies[Term::kGradientCopy] == 0);
}

TEST_CASE("under 16 bytes a parameter ZeRO 1 and 2 tend to 4 and 8 times less state") {
  const JobSpec job = on_accelerators(llama2_7b(), 2048, "deepspeed");
  const auto of = [&](Sharding sharding) {
    LayoutChoice choice{.shard = 1024, .sharding = sharding, .microbatches = 2};
    choice.precision = Precision::kFp16;
    return states(estimate(job, choice));
  };
  const double all = 16 * 6'738'415'616.0;
  CHECK(all / of(Sharding::kOptimizerState) == doctest::Approx(4).epsilon(0.01));
  CHECK(all / of(Sharding::kGradients) == doctest::Approx(8).epsilon(0.01));
}

TEST_CASE("on GPUs too our engine's selective recompute drops the MLP's first product") {
  LayoutChoice choice{.tensor = 2, .recompute = Recompute::kSelective, .micro_batch = 3};
  const auto dropped = [&](const JobSpec& job) {
    const CallBytes block = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
    return block.saved - block.selective;
  };
  JobSpec gpt2 = on_accelerators(gpt2_sized(2, 4096, 32), 2048, "smp");
  CHECK(dropped(gpt2) == doctest::Approx(2.0 * 3 * 2048 * 4 * 4096 / 2));
  const JobSpec llama = on_accelerators(llama2_7b(), 4096, "smp");  // gate and up
  CHECK(dropped(llama) == doctest::Approx(2.0 * 3 * 4096 * 2 * 11008 / 2));
  // Elsewhere, and where the engine does not run, it is the core of attention.
  const double row_sums = 4.0 * 3 * 2048 * 32 / 2, scores = 2.0 * 3 * 16 * 2048 * 2048;
  CHECK(dropped(on_accelerators(gpt2.model, 2048, "megatron-core")) == doctest::Approx(row_sums));
  gpt2.training.attention = AttentionKind::kUnfused;
  CHECK(dropped(gpt2) == doctest::Approx(scores));
}

TEST_CASE("memory never grows with the shard, pipeline or tensor degree") {
  for (const char* framework : {"smp", "megatron-core", "deepspeed", "fsdp2", "smp-v1", "smp-v2"}) {
    JobSpec job = on_accelerators(llama2_7b(), 4096, framework);
    job.cluster.reserved_bytes = 1 << 30;  // buffers of communicators are part of it
    for (const Sharding sharding :
         {Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters}) {
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        LayoutChoice choice{.sharding = sharding, .recompute = recompute, .microbatches = 8};
        double before = 1e18;
        for (const int32_t z : {2, 4, 8, 64}) {
          choice.shard = z;
          const double now = estimate(job, choice).peak_bytes;
          CHECK(now <= before);
          before = now;
        }
        for (const int32_t t : {2, 4, 8}) {
          choice.tensor = t;
          const double now = estimate(job, choice).peak_bytes;
          CHECK(now <= before);
          before = now;
        }
        for (const int32_t p : {2, 4, 8}) {
          choice.pipeline = p;
          choice.microbatches = 1;  // one in flight on each stage
          const double now = estimate(job, choice).peak_bytes;
          CHECK(now <= before);
          before = now;
        }
      }
    }
  }
}

TEST_CASE("a term's formula, worked out, gives the term's bytes, whatever recomputes") {
  const JobSpec job = on_accelerators(gpt2_sized(24, 1024, 16), 1024, "megatron-core");
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    for (const int32_t layers : {-1, 5}) {
      LayoutChoice choice{.pipeline = 2, .tensor = 2, .shard = 4};
      choice.sharding = Sharding::kOptimizerState;
      choice.micro_batch = 2;
      choice.microbatches = 8;
      choice.recompute = recompute;
      choice.recompute_layers = recompute == Recompute::kNone ? -1 : layers;
      for (const int64_t stage : {0, 1}) {
        const MemoryEstimate memory = estimate_memory(job, choice, layer_bytes(job, choice), stage);
        for (const Term term :
             {Term::kWeights, Term::kMasterWeights, Term::kActivations, Term::kCheckpoints}) {
          if (memory[term] == 0) continue;
          const std::string formula = formula_of(term, job, choice, stage);
          INFO(formula, ", stage ", stage);
          CHECK(worked_out(formula) == doctest::Approx(memory[term]).epsilon(1e-6));
        }
      }
    }
  }
}

TEST_CASE("experts are sharded over their own replicas, and routed tokens cost their width") {
  ModelSpec model = llama2_7b();
  model.family = ModelFamily::kTransformer;
  model.num_experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden_size = model.ffn_hidden_size;
  const JobSpec job = on_accelerators(model, 4096, "megatron-core");
  LayoutChoice choice{
      .expert = 8, .shard = 16, .sharding = Sharding::kOptimizerState, .microbatches = 2};
  const LayerBytes layers = layer_bytes(job, choice);
  CHECK(layers.of(model::LayerKind::kMoeBlock).expert_parameters ==
        doctest::Approx(3.0 * 4096 * 11008));  // one of eight
  const MemoryEstimate spread = estimate_memory(job, choice, layers);
  // 6 bytes of all that a rank holds; 12 over 16 ranks, of experts over the two that hold each.
  const double experts = 32 * layers.of(model::LayerKind::kMoeBlock).expert_parameters;
  const StageParameters held = parameters_of(layers, stage_holds(*layers.kinds, choice, 0));
  CHECK(held.experts == doctest::Approx(experts));
  CHECK(states(spread) ==
        doctest::Approx(6 * (held.dense + experts) + 12 * held.dense / 16 + 12 * experts / 2));
  // Dispatched tokens, gate, up and product: the router's weights are applied to the product, so
  // that results are not kept. The fullest rank's experts get 1.3 times their share.
  LayoutChoice one = choice;
  JobSpec single = job;
  single.model.experts_per_token = 1;
  const double more = layers.of(model::LayerKind::kMoeBlock).call.saved -
                      layer_bytes(single, one).of(model::LayerKind::kMoeBlock).call.saved;
  // Beside them the number and the weight of each token's expert.
  CHECK(more == doctest::Approx(1.3 * 2.0 * 4096 * (3 * 11008 + 4096) + 8 * 4096).epsilon(1e-3));
  // A capacity drops what is more; padding fills it.
  const auto kept = [&](double factor, bool pads) {
    JobSpec capped = job;
    capped.model.expert_capacity_factor = factor;
    capped.model.pad_experts_to_capacity = pads;
    return layer_bytes(capped, one).of(model::LayerKind::kMoeBlock).call.saved;
  };
  const double each = 2 * 2.0 * 4096 * (3 * 11008 + 4096);
  CHECK(layers.of(model::LayerKind::kMoeBlock).call.saved - kept(1, false) ==
        doctest::Approx(0.3 * each).epsilon(1e-3));
  CHECK(kept(2, false) == layers.of(model::LayerKind::kMoeBlock).call.saved);
  CHECK(kept(2, true) - layers.of(model::LayerKind::kMoeBlock).call.saved ==
        doctest::Approx(0.7 * each).epsilon(1e-3));
}

TEST_CASE("offloading moves bytes to the host") {
  const JobSpec job = on_accelerators(llama2_7b(), 4096, "deepspeed");
  LayoutChoice choice{.shard = 8, .sharding = Sharding::kGradients, .microbatches = 2};
  const MemoryEstimate kept = estimate(job, choice);
  CHECK(kept.host_bytes == 0);
  choice.offload_optimizer = true;
  const MemoryEstimate offloaded = estimate(job, choice);
  const double shard = 6'738'415'616 / 8.0;
  CHECK(offloaded[Term::kMasterWeights] == 0);
  CHECK(offloaded.host_bytes == doctest::Approx(16 * shard));  // 12 and fp32 gradients
  choice.sharding = Sharding::kParameters;
  choice.offload_parameters = true;
  const MemoryEstimate all = estimate(job, choice);
  CHECK(all[Term::kWeights] == 0);
  CHECK(all[Term::kGatheredWeights] > 0);
  CHECK(all.host_bytes == doctest::Approx(18 * shard));
}

TEST_CASE("offloaded activations come back through a window of the widest blocks") {
  ModelSpec model = llama2_7b();
  model.num_experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden_size = model.ffn_hidden_size;
  model.first_dense_layers = 1;
  const JobSpec job = on_accelerators(model, 4096, "smp");
  LayoutChoice choice{.expert = 8, .shard = 8};
  choice.microbatches = 2;
  choice.offload_activations = true;
  const LayerBytes layers = layer_bytes(job, choice);
  CHECK(layers.of(model::LayerKind::kMoeBlock).call.saved >
        layers.of(model::LayerKind::kBlock).call.saved);
  const double blocks = static_cast<double>(job.parallel.activation_loading_horizon) + 1;
  CHECK(estimate(job, choice)[Term::kOffloadWindow] ==
        doctest::Approx(blocks * layers.of(model::LayerKind::kMoeBlock).call.saved));
}

TEST_CASE("what PyTorch counts leaves out the context, and what is allocated the fragmentation") {
  const JobSpec job = on_accelerators(llama2_7b(), 4096, "fsdp2");
  const MemoryEstimate memory =
      estimate(job, {.shard = 8, .sharding = Sharding::kParameters, .recompute = Recompute::kFull});
  CHECK(memory.peak_bytes - memory.reserved_bytes ==
        doctest::Approx(memory[Term::kContext] + memory[Term::kCommunicators]));
  CHECK(memory[Term::kContext] / kGiB == doctest::Approx(0.55));
  CHECK(memory.reserved_bytes ==
        doctest::Approx(memory.allocated_bytes * (1 + fragmentation_of(job, memory.phase))));
  double sum = 0;
  for (const double bytes : memory.bytes) sum += bytes;
  CHECK(sum == doctest::Approx(memory.peak_bytes));
}
