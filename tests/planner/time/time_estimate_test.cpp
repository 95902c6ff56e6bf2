#include "smp/planner/time/time_estimate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "choice/resolve.h"
#include "cost/matmul_seconds.h"
#include "cost/stage_holds.h"
#include "links/link_model.h"
#include "search/pricer.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/links/collective_seconds.h"
#include "smp/planner/time/time_model.h"
#include "time/stage_seconds.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::cost;
using namespace smp::jobfile;
using namespace smp::time;

namespace {

constexpr const char* kModel =
    "model: {family: gpt2, num_layers: 48, hidden_size: 6144, num_heads: 48, vocab_size: 51200, "
    "max_positions: 2048}\n"
    "training: {sequence_length: 2048, precision: bf16}\n";

JobSpec job_on(const std::string& cluster, int64_t hosts, const std::string& model = kModel) {
  return read_job({{"job.yaml", model}, cluster_source(cluster)},
                  {"cluster.hosts=" + std::to_string(hosts)});
}

TimeEstimate estimate(const JobSpec& job, const LayoutChoice& choice) {
  return estimate_time(job, choice, layer_bytes(job, choice), layer_seconds(job, choice));
}

double step_s(const JobSpec& job, const LayoutChoice& choice) {
  return estimate(job, choice).step_s;
}

// Layouts of 32 accelerators, four hosts of eight.
std::vector<LayoutChoice> layouts() {
  std::vector<LayoutChoice> out;
  for (const int32_t tensor : {1, 2, 8}) {
    for (const int32_t pipeline : {1, 2, 4}) {
      for (const Sharding sharding :
           {Sharding::kNone, Sharding::kOptimizerState, Sharding::kParameters}) {
        LayoutChoice choice;
        choice.tensor = tensor;
        choice.pipeline = pipeline;
        choice.sharding = sharding;
        const int32_t data = 32 / (tensor * pipeline);
        if (pipeline > 1 && sharding == Sharding::kParameters) continue;
        if (sharding == Sharding::kNone || data == 1) {
          choice.sharding = Sharding::kNone;
          choice.replica = data;
        } else {
          choice.shard = data;
        }
        choice.micro_batch = 2;
        choice.microbatches = 8;
        choice.recompute = tensor == 2 ? Recompute::kFull : Recompute::kNone;
        out.push_back(choice);
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("no layout takes less than its flops at the peak") {
  for (const char* cluster : {"dgx-a100-80gb", "dgx-h100", "l40s-8x"}) {
    const JobSpec job = job_on(cluster, 4);
    for (const LayoutChoice& choice : layouts()) {
      const TimeEstimate time = estimate(job, choice);
      // model_flops counts the whole square of attention, of which causal kernels do half: with
      // this model and sequence that is 5 % of it.
      CHECK(time.step_s > 0.94 * time.model_flops / 32 / job.cluster.half_flops_per_s);
      double sum = 0;
      for (const double part : time.seconds) {
        CHECK(part >= 0);
        sum += part;
      }
      CHECK(sum == doctest::Approx(time.step_s));
    }
  }
}

TEST_CASE("more bandwidth, launches or flops never make a step longer") {
  for (const char* cluster : {"p4d.24xlarge", "a100-pcie-8x"}) {
    const JobSpec job = job_on(cluster, 4);
    for (const auto member :
         {&ClusterSpec::intra_host_bytes_per_s, &ClusterSpec::inter_host_bytes_per_s,
          &ClusterSpec::memory_bytes_per_s, &ClusterSpec::half_flops_per_s}) {
      JobSpec better = job;
      better.cluster.*member *= 2;
      for (const LayoutChoice& choice : layouts()) {
        CHECK(step_s(better, choice) <= step_s(job, choice) * (1 + 1e-12));
      }
    }
    JobSpec quicker = job;
    quicker.cluster.kernel_launch_s /= 2;
    quicker.cluster.inter_host_latency_s /= 2;
    for (const LayoutChoice& choice : layouts()) {
      CHECK(step_s(quicker, choice) <= step_s(job, choice) * (1 + 1e-12));
    }
  }
}

TEST_CASE("the closed form is the simulation of the very schedule") {
  // Of 48 blocks in 4 stages the ends are a little longer; in 5 stages two have one block less.
  for (const int64_t hosts : {4, 5}) {
    JobSpec job = job_on("dgx-a100-80gb", hosts);
    for (const PipelineKind kind :
         {PipelineKind::kSimple, PipelineKind::kInterleaved, PipelineKind::kVirtual}) {
      LayoutChoice choice;
      choice.tensor = 8;
      choice.pipeline = static_cast<int32_t>(hosts);
      choice.schedule = kind;
      choice.virtual_stages = kind == PipelineKind::kVirtual ? (hosts == 4 ? 3 : 1) : 1;
      if (kind == PipelineKind::kVirtual && hosts == 5) continue;
      choice.micro_batch = 1;
      choice.microbatches = 32;
      const Plan plan = resolve(job, choice);
      const double simulated = static_cast<double>(predict_time(plan).step_ns) * 1e-9;
      CAPTURE(static_cast<int>(kind));
      CAPTURE(hosts);
      CHECK(step_s(plan.job, choice) ==
            doctest::Approx(simulated).epsilon(hosts == 4 ? 0.01 : 0.05));
    }
  }
}

TEST_CASE("where stages hold different layers, the closed form is the simulation of them") {
  for (const char* name : {"nemotron-h-8b", "nemotron3-nano-30b-a3b", "t5-11b"}) {
    for (const int32_t pipeline : {2, 4, 8}) {
      const JobSpec job = job_on("dgx-h100", pipeline,
                                 "model: " + std::string(name) +
                                     "\ntraining: {sequence_length: 512, precision: bf16}\n"
                                     "parallel: {framework: megatron-core}\n");
      for (const PipelineKind kind : {PipelineKind::kInterleaved, PipelineKind::kVirtual}) {
        LayoutChoice choice;
        choice.tensor = 8;
        choice.pipeline = pipeline;
        choice.schedule = kind;
        choice.virtual_stages = kind == PipelineKind::kVirtual ? 2 : 1;
        choice.microbatches = 32;
        const Plan plan = resolve(job, choice);
        const double simulated = static_cast<double>(predict_time(plan).step_ns) * 1e-9;
        CAPTURE(name);
        CAPTURE(pipeline);
        CHECK(step_s(plan.job, choice) ==
              doctest::Approx(simulated).epsilon(kind == PipelineKind::kInterleaved ? 0.01 : 0.05));
      }
    }
  }
}

// Of our engine, on 32 accelerators.
std::vector<LayoutChoice> sharded_layouts() {
  std::vector<LayoutChoice> out;
  for (LayoutChoice choice : layouts()) {
    const int32_t data = choice.shard * choice.replica;
    std::vector<std::pair<Sharding, int32_t>> shardings = {{Sharding::kNone, 1}};
    for (const Sharding kind :
         {Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters}) {
      if (data > 1) shardings.emplace_back(kind, data);
      if (data > 2) shardings.emplace_back(kind, 2);
    }
    if (choice.sharding != Sharding::kNone) continue;  // each split once
    choice.micro_batch = 1;
    choice.recompute = Recompute::kNone;
    for (const auto& [kind, shard] : shardings) {
      choice.sharding = kind;
      choice.shard = shard;
      choice.replica = data / shard;
      out.push_back(choice);
    }
  }
  return out;
}

TEST_CASE("the closed form of exposed messages is near the simulation of all actions") {
  std::vector<double> ratios;
  for (const char* cluster : {"dgx-a100-80gb", "p4d.24xlarge", "a100-pcie-8x"}) {
    const JobSpec job = job_on(cluster, 4);
    search::Pricer pricer(job);
    for (const LayoutChoice& choice : sharded_layouts()) {
      const double simulated =
          static_cast<double>(predict_time(resolve(job, choice)).step_ns) * 1e-9;
      ratios.push_back(simulated / step_s(job, choice));
      CAPTURE(cluster);
      CAPTURE(describe(choice));
      CHECK(ratios.back() > 0.8);
      CHECK(ratios.back() < 1.2);
      const search::Candidate bound = pricer.price_time(choice);
      CHECK(simulated >=
            0.999 * bound.step_s * bound.least_seconds_per_token / bound.seconds_per_token);
    }
  }
  std::sort(ratios.begin(), ratios.end());
  CHECK(ratios.size() == 165);
  CHECK(ratios[ratios.size() / 4] > 0.95);
  CHECK(ratios[ratios.size() * 3 / 4] < 1.03);
}

TEST_CASE("with frozen weights the closed form is near the simulation") {
  const JobSpec full = job_on("dgx-a100-80gb", 4);
  for (const std::vector<std::string>& frozen : std::vector<std::vector<std::string>>{
           {}, {"layers.0-11"}, {"embedding", "layers.0-17"}, {"embedding", "layers"}}) {
    JobSpec job = full;
    job.parallel.framework = framework::framework_named("megatron-core");
    job.training.frozen = frozen;
    if (frozen.empty()) job.training.lora.rank = 16;
    for (const PipelineKind kind : {PipelineKind::kInterleaved, PipelineKind::kVirtual}) {
      LayoutChoice choice;
      choice.tensor = 8;
      choice.pipeline = 4;
      choice.schedule = kind;
      choice.virtual_stages = kind == PipelineKind::kVirtual ? 3 : 1;
      choice.micro_batch = 1;
      choice.microbatches = 32;
      const Plan plan = resolve(job, choice);
      const double simulated = static_cast<double>(predict_time(plan).step_ns) * 1e-9;
      const double closed = step_s(plan.job, choice);
      CAPTURE(static_cast<int>(kind));
      CAPTURE(frozen.size());
      // The slowest stage between the ends stands for all of them. That chunks of unequal length
      // wait for each other, the closed form does not see.
      CHECK(closed >= (kind == PipelineKind::kVirtual ? 0.93 : 0.98) * simulated);
      CHECK(closed <= (frozen.empty() ? 1.01 : 1.25) * simulated);
      // Frozen layers save time. Adapters may cost more than they save on eight tensor ranks.
      JobSpec trained = plan.job;
      trained.training.frozen = {};
      if (!frozen.empty()) CHECK(closed < step_s(trained, choice));
    }
  }
}

TEST_CASE("reductions and the optimizer count trained parameters alone") {
  JobSpec job = job_on("dgx-a100-80gb", 4);
  job.parallel.framework = framework::framework_named("megatron-core");
  LayoutChoice choice;
  choice.shard = 32;
  choice.sharding = Sharding::kOptimizerState;
  const TimeEstimate full = estimate(job, choice);
  job.training.lora.rank = 8;
  const TimeEstimate adapted = estimate(job, choice);
  // Of 6144 x 6144 and the like, 16 x 6144: a thousandth of the bytes.
  CHECK(adapted[TimePart::kOptimizer] < 0.01 * full[TimePart::kOptimizer]);
  CHECK(adapted[TimePart::kReplica] < 0.2 * full[TimePart::kReplica]);
  CHECK(adapted.model_flops < 0.75 * full.model_flops);
}

TEST_CASE("matmuls: waves over the multiprocessors, padded tiles, unaligned rows") {
  MatmulRates rates;
  rates.flops_per_s = 100e12;
  rates.multiprocessors = 100;
  rates.memory_bytes_per_s = 1e15;
  // 100 tiles of 256 x 128 are one wave, 101 two; small tiles soften that.
  const double one_wave = matmul_s(rates, 100, 256, 128, 8192);
  CHECK(one_wave == doctest::Approx(2.0 * 256 * 128 * (8192 + 128) / 1e12));
  const double next = matmul_s(rates, 101, 256, 128, 8192);
  CHECK(next > 1.2 * one_wave);
  CHECK(next <= 2 * one_wave);
  CHECK(matmul_s(rates, 1000, 2048, 192, 2048) >
        1.1 * 1.5 * matmul_s(rates, 1000, 2048, 128, 2048));
  CHECK(matmul_s(rates, 1, 4096, 50257, 4096) > 1.9 * matmul_s(rates, 1, 4096, 50256, 4096));
  // Without multiprocessors it is flops / rate, and never less than reading the operands.
  rates.multiprocessors = 0;
  CHECK(matmul_s(rates, 1, 10, 10, 10) == doctest::Approx(2000 / 100e12));
  rates = {1e15, 100, 1e9, 2};
  CHECK(matmul_s(rates, 1, 8, 1024, 1024) ==
        doctest::Approx(2.0 * (8 * 1024 + 1024 * 1024 + 8 * 1024) / 1e9));
}

TEST_CASE("where owners send their weights one after the other, a thousand ranks pay for each") {
  const auto step_of = [](const char* framework, int32_t shard) {
    JobSpec job = job_on("a800-8x", 128,
                         "model: {family: llama, num_layers: 32, hidden_size: 4096, num_heads: 32, "
                         "ffn_hidden_size: 11008, vocab_size: 103168, max_positions: 2048}\n"
                         "training: {sequence_length: 2048, precision: bf16}\n"
                         "parallel: {framework: " +
                             std::string(framework) + "}\n");
    LayoutChoice choice;
    choice.sharding = Sharding::kOptimizerState;
    choice.shard = shard;
    choice.replica = 1024 / shard;
    choice.micro_batch = 2;
    return step_s(job, choice);
  };
  CHECK(step_of("internevo", 1024) > 1.4 * step_of("internevo", 8));
  CHECK(step_of("deepspeed", 1024) < 1.2 * step_of("deepspeed", 8));
}

TEST_CASE("ZeRO-3 hides neither its first gather nor its last reduction") {
  JobSpec job = job_on("dgx-a100-80gb", 16);
  LayoutChoice choice;
  choice.sharding = Sharding::kParameters;
  choice.shard = 128;
  job.cluster.collective_multiprocessors = 0;
  const TimeEstimate hidden = estimate(job, choice);
  CHECK(hidden[TimePart::kSharding] > 0);
  job.cluster.intra_host_bytes_per_s *= 1e3;
  job.cluster.inter_host_bytes_per_s *= 1e3;
  CHECK(estimate(job, choice)[TimePart::kSharding] < hidden[TimePart::kSharding]);
}

TEST_CASE("sharding over a host is quicker than over 128 hosts") {
  JobSpec job = job_on("a800-8x", 128,
                       "model: {family: llama, num_layers: 32, hidden_size: 4096, num_heads: 32, "
                       "ffn_hidden_size: 11008, vocab_size: 103168}\n"
                       "training: {sequence_length: 2048, precision: bf16}\n"
                       "parallel: {framework: deepspeed}\n");
  for (const Sharding sharding : {Sharding::kOptimizerState, Sharding::kParameters}) {
    LayoutChoice choice;
    choice.sharding = sharding;
    choice.micro_batch = 1;
    choice.microbatches = 2;
    choice.shard = 8;
    choice.replica = 128;
    const double hybrid = step_s(job, choice);
    choice.shard = 1024;
    choice.replica = 1;
    CHECK(hybrid < step_s(job, choice));
  }
}

TEST_CASE("small layers take as long as their launches") {
  const JobSpec job =
      job_on("dgx-a100-80gb", 1,
             "model: {family: gpt2, num_layers: 12, hidden_size: 512, num_heads: 8, "
             "vocab_size: 50304, max_positions: 128}\n"
             "training: {sequence_length: 128, precision: bf16}\n");
  LayoutChoice choice;
  choice.replica = 8;
  const TimeEstimate time = estimate(job, choice);
  CHECK(time[TimePart::kLaunch] > time[TimePart::kMatmul] + time[TimePart::kMemoryBound]);
}

TEST_CASE("recomputing some layers costs their share, offloading what computing does not hide") {
  const JobSpec job = job_on("dgx-a100-80gb", 1);
  LayoutChoice choice;
  choice.tensor = 8;
  choice.microbatches = 4;
  const double none = step_s(job, choice);
  choice.recompute = Recompute::kFull;
  const double all = step_s(job, choice);
  choice.recompute = Recompute::kSelective;  // of four products and attention one
  CHECK(step_s(job, choice) > none + 0.1 * (all - none));
  CHECK(step_s(job, choice) < none + 0.6 * (all - none));
  choice.recompute = Recompute::kFull;
  choice.recompute_layers = 12;
  CHECK(step_s(job, choice) - none == doctest::Approx((all - none) / 4));
  choice.offload_activations = true;
  CHECK(step_s(job, choice) >= none);
}

TEST_CASE("an update moves its states in the bytes of their types") {
  JobSpec job =
      read_job({{"job.yaml",
                 "model: {family: llama, num_layers: 4, hidden_size: 4096, num_heads: 32, "
                 "ffn_hidden_size: 11008, vocab_size: 32000, max_positions: 4096}\n"
                 "training: {sequence_length: 4096, precision: bf16}\n"
                 "parallel: {framework: megatron-core}\n"},
                jobfile::cluster_source("dgx-h100")});
  const LayoutChoice choice;
  const double usual = step_s(job, choice);
  job.training.optimizer.momentum_dtype = MomentKind::kBf16;
  const double half = usual - step_s(job, choice);
  CHECK(half > 0);
  job.training.optimizer.variance_dtype = MomentKind::kBf16;
  CHECK(usual - step_s(job, choice) == doctest::Approx(2 * half));
  // The remainder and the 16-bit weight are as much as the weight in fp32.
  job.training.optimizer.momentum_dtype = job.training.optimizer.variance_dtype = MomentKind::kFp32;
  job.training.optimizer.master_weights = MasterKind::kRemainder;
  CHECK(step_s(job, choice) == doctest::Approx(usual));
}

TEST_CASE("on CPUs activations that are offloaded are copied out and back, and nothing hides it") {
  const JobSpec job = read_job(
      {{"job.yaml",
        "model: {family: gpt2, num_layers: 3, hidden_size: 128, num_heads: 2, vocab_size: 256, "
        "max_positions: 64}\ntraining: {sequence_length: 64, precision: fp32}\n"
        "cluster: {device: cpu, memory_per_process: 1GiB, fp32_flops_per_s: 100G, "
        "memory_bytes_per_s: 10G}\n"}});
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    LayoutChoice choice;
    choice.precision = Precision::kFp32;
    choice.microbatches = 2;
    choice.recompute = recompute;
    const CallBytes block = layer_bytes(job, choice).of(model::LayerKind::kBlock).call;
    const double kept = recompute == Recompute::kNone        ? block.saved
                        : recompute == Recompute::kSelective ? block.selective
                                                             : block.checkpoint;
    const double without = step_s(job, choice);
    choice.offload_activations = true;
    // Read and written, out and back, of 3 blocks and 2 microbatches.
    CHECK(step_s(job, choice) - without == doctest::Approx(2 * 2 * 3 * 2 * kept / 10e9));
  }
}

TEST_CASE("on CPUs dropout costs what drawing takes, forward and backward") {
  const auto seconds_of = [](const std::string& dropout, int32_t tensor = 1) {
    const JobSpec job = read_job(
        {{"job.yaml",
          "model: {family: gpt2, num_layers: 2, hidden_size: 200, num_heads: 4, head_dim: 50, "
          "vocab_size: 256, max_positions: 512" +
              dropout +
              "}\ntraining: {sequence_length: 512, precision: fp32}\n"
              "cluster: {device: cpu, memory_per_process: 1GiB, fp32_flops_per_s: 100G}\n"}});
    LayoutChoice choice;
    choice.micro_batch = 2;
    choice.precision = Precision::kFp32;
    choice.tensor = tensor;
    choice.sequence_parallel = tensor > 1;
    return layer_seconds(job, choice);
  };
  const double element = 45 / 100e9 / 0.5;  // flops of a draw; the rate and its share
  const double tokens = 2 * 512;
  const auto more = [](const CallSeconds& with, const CallSeconds& without) {
    CHECK(with.backward() - without.backward() ==
          doctest::Approx(with.forward() - without.forward()));
    return with.forward() - without.forward();
  };
  const LayerSeconds plain = seconds_of("");
  const LayerSeconds hidden = seconds_of(", hidden_dropout: 0.1");
  // Columns are drawn 128 at a time.
  CHECK(more(hidden.of(model::LayerKind::kBlock), plain.of(model::LayerKind::kBlock)) ==
        doctest::Approx(2 * tokens * 256 * element));
  CHECK(more(hidden.of(model::LayerKind::kEmbedding), plain.of(model::LayerKind::kEmbedding)) ==
        doctest::Approx(tokens * 256 * element));
  CHECK(more(hidden.of(model::LayerKind::kHead), plain.of(model::LayerKind::kHead)) == 0);
  CHECK(more(seconds_of(", attention_dropout: 0.1").of(model::LayerKind::kBlock),
             plain.of(model::LayerKind::kBlock)) ==
        doctest::Approx(4 * tokens * (256 + 64) * element));
  CHECK(more(seconds_of(", hidden_dropout: 0.1", 2).of(model::LayerKind::kBlock),
             seconds_of("", 2).of(model::LayerKind::kBlock)) ==
        doctest::Approx(tokens * 256 * element));
}

TEST_CASE("blocks of a decoder beside an encoder have a cost of their own, where they lie") {
  const JobSpec job =
      job_on("dgx-a100-80gb", 1,
             "model: {family: transformer, stack: encoder_decoder, mlp: relu, norm: rmsnorm, "
             "position_embedding: relative, num_layers: 12, hidden_size: 1024, num_heads: 16, "
             "ffn_hidden_size: 4096, vocab_size: 32128, tied_embeddings: true}\n"
             "training: {sequence_length: 512, precision: bf16}\n");
  LayoutChoice choice;
  choice.pipeline = 2;
  choice.replica = 4;
  choice.micro_batch = 4;
  choice.microbatches = 8;
  const LayerBytes bytes = layer_bytes(job, choice);
  const LayerSeconds seconds = layer_seconds(job, choice);
  // A norm and 4 h^2 more.
  CHECK(bytes.of(model::LayerKind::kCrossBlock).parameters -
            bytes.of(model::LayerKind::kBlock).parameters ==
        1024 + 4 * 1024 * 1024);
  CHECK(bytes.of(model::LayerKind::kCrossBlock).call.saved >
        bytes.of(model::LayerKind::kBlock).call.saved);
  CHECK(seconds.of(model::LayerKind::kCrossBlock).matmul_forward >
        1.3 * seconds.of(model::LayerKind::kBlock).matmul_forward);
  const auto count = [&](int64_t stage, model::LayerKind kind) {
    return stage_holds(*bytes.kinds, choice, stage).of_kind[bytes.kinds->of(kind)];
  };
  CHECK(count(0, model::LayerKind::kBlock) == 12);
  CHECK(count(1, model::LayerKind::kCrossBlock) == 12);
  const auto stage_s = [&](int64_t stage) {
    const StageHolds holds = stage_holds(*bytes.kinds, choice, stage);
    return stage_seconds(job, choice, bytes, seconds, holds, parameters_of(bytes, holds)).both();
  };
  const double more = 12 * (seconds.of(model::LayerKind::kCrossBlock).forward() +
                            seconds.of(model::LayerKind::kCrossBlock).backward() -
                            seconds.of(model::LayerKind::kBlock).forward() -
                            seconds.of(model::LayerKind::kBlock).backward());
  CHECK(stage_s(1) - stage_s(0) > 0.9 * more);  // and a head, which is more than an embedding
  choice.pipeline = 3;
  CHECK(count(1, model::LayerKind::kBlock) == 4);
  CHECK(count(1, model::LayerKind::kCrossBlock) == 4);
}
