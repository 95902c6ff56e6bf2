#include "smp/plan/layout/traffic.h"

#include <doctest/doctest.h>

#include <map>
#include <sstream>

#include "plan/plan_samples.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/schedule/schedule.h"

using namespace smp;
using namespace smp::layout;
using namespace smp::mesh;
using namespace smp::schedule;

namespace {

std::vector<std::string> rows_of(const Plan& plan, int64_t rank) {
  std::vector<std::string> rows;
  for (const Traffic& t : step_traffic(plan, rank)) {
    std::ostringstream row;
    row << t.label << ' ' << name_of(t.op) << ' ' << name_of(t.axis) << '/' << t.group_size << ' '
        << name_of(t.dtype) << '[' << t.count << "] x" << t.calls << " = " << t.wire_bytes;
    rows.push_back(row.str());
  }
  return rows;
}

using Rows = std::vector<std::string>;

}  // namespace

TEST_CASE("a single rank sends nothing") {
  CHECK(rows_of(sample_plan(small_gpt2(), {}), 0).empty());
}

TEST_CASE("data parallelism reduces every bucket") {
  // 154,560 parameters in one bucket: 12,336 + 768 in the embedding, 5 x 28,272 in the blocks, 96
  // in the head.
  const Plan plan = sample_plan(small_gpt2(), {.replica = 2});
  REQUIRE(rank_layout(plan, 0).elements == 154'560);
  CHECK(rows_of(plan, 0) == Rows{"data.gradients all_reduce data/2 fp32[154560] x1 = 618240",
                                 "step.norm_and_loss all_reduce world/2 fp64[8] x1 = 64"});
}

TEST_CASE("optimizer state sharding scatters gradients and gathers weights") {
  const Plan plan = sample_plan(small_gpt2(), {.shard = 2, .replica = 2});
  CHECK(rows_of(plan, 3) == Rows{"data.gradients reduce_scatter shard/2 fp32[154560] x1 = 309120",
                                 "data.gradients all_reduce replica/2 fp32[77280] x1 = 309120",
                                 "shard.weights all_gather shard/2 fp32[77280] x1 = 309120",
                                 "step.norm_and_loss all_reduce world/4 fp64[8] x1 = 192"});
}

TEST_CASE("the step's end sums how many targets count, where that is not known before") {
  for (const bool masked : {false, true}) {
    for (const Packing pack : {Packing::kConcatenate, Packing::kDocuments, Packing::kPad}) {
      Plan plan = sample_plan(small_gpt2(), {.replica = 2});
      plan.job.training.data_loss_mask = masked;
      plan.job.training.data_pack = pack;
      const bool vary = masked || pack != Packing::kConcatenate;
      CHECK(counts_vary(plan.job.training) == vary);
      CHECK(rows_of(plan, 0).back() ==
            (vary ? "step.norm_and_loss all_reduce world/2 fp64[9] x1 = 72"
                  : "step.norm_and_loss all_reduce world/2 fp64[8] x1 = 64"));
    }
  }
}

TEST_CASE("buckets of equal size share a row") {
  const Plan plan = sample_plan(small_gpt2(), {.replica = 2, .bucket_bytes = 1});
  CHECK(rows_of(plan, 0) == Rows{"data.gradients all_reduce data/2 fp32[96] x1 = 384",
                                 "data.gradients all_reduce data/2 fp32[28272] x5 = 565440",
                                 "data.gradients all_reduce data/2 fp32[13104] x1 = 52416",
                                 "step.norm_and_loss all_reduce world/2 fp64[8] x1 = 64"});
}

TEST_CASE(
    "tensor parallelism: two sums each way per block, one for embedding and head, the norms") {
  // [2, 16, 48] = 1,536 elements, 5 blocks, 4 microbatches.
  CHECK(rows_of(sample_plan(small_gpt2(), {.tensor = 2}), 1) ==
        Rows{"tensor.forward all_reduce tensor/2 fp32[1536] x44 = 270336",
             "tensor.backward all_reduce tensor/2 fp32[1536] x44 = 270336",
             "tensor.loss all_reduce tensor/2 fp32[32] x4 = 512",
             "tensor.loss all_reduce tensor/2 fp32[64] x4 = 1024",
             "step.norm_and_loss all_reduce world/2 fp64[8] x1 = 64"});
}

TEST_CASE("split sequences: sums are scattered, and gathered ahead of the next matrix") {
  // [2, 16, 48] = 1,536 elements, of each of 2 ranks 768; 5 blocks, 4 microbatches; LayerNorm's two
  // vectors of 48.
  CHECK(rows_of(sample_plan(small_gpt2(), {.tensor = 2, .sequence_parallel = true}), 1) ==
        Rows{"tensor.forward reduce_scatter tensor/2 fp32[1536] x44 = 135168",
             "tensor.backward all_gather tensor/2 fp32[768] x88 = 270336",
             "tensor.forward all_gather tensor/2 fp32[768] x44 = 135168",
             "tensor.backward reduce_scatter tensor/2 fp32[1536] x44 = 135168",
             "tensor.norms all_reduce tensor/2 fp32[96] x44 = 16896",
             "tensor.loss all_reduce tensor/2 fp32[32] x4 = 512",
             "tensor.loss all_reduce tensor/2 fp32[64] x4 = 1024",
             "step.norm_and_loss all_reduce world/2 fp64[8] x1 = 64"});
  // A stage hands on its ranks' parts, and keeps them, not all, until the weights' gradients.
  const Plan plan = sample_plan(small_gpt2(), {.pipeline = 3,
                                               .tensor = 2,
                                               .pipeline_kind = PipelineKind::kZbH1,
                                               .sequence_parallel = true});
  const Rows rows = rows_of(plan, plan.degrees.tensor);  // the second stage: two blocks
  REQUIRE(rows.size() > 5);
  CHECK(rows[2] == "tensor.backward all_gather tensor/2 fp32[768] x48 = 147456");
  CHECK(rows[5] == "pipeline.activations send pipeline/3 fp32[768] x4 = 12288");
}

TEST_CASE("a layer of a hybrid has one pair of matrices, and one norm") {
  ModelSpec hybrid = small_gpt2();
  hybrid.layer_pattern = "*-*-*";
  const Rows rows = rows_of(sample_plan(hybrid, {.tensor = 2, .sequence_parallel = true}), 1);
  REQUIRE(rows.size() > 5);
  CHECK(rows[0] == "tensor.forward reduce_scatter tensor/2 fp32[1536] x24 = 73728");
  CHECK(rows[1] == "tensor.forward all_gather tensor/2 fp32[768] x24 = 73728");
  CHECK(rows[2] == "tensor.backward reduce_scatter tensor/2 fp32[1536] x24 = 73728");
  CHECK(rows[3] == "tensor.backward all_gather tensor/2 fp32[768] x48 = 147456");
  CHECK(rows[4] == "tensor.norms all_reduce tensor/2 fp32[96] x24 = 9216");
}

TEST_CASE("16-bit jobs send 16-bit activations, and fp32 gradients and losses") {
  const Plan plan =
      sample_plan(small_gpt2(), {.tensor = 2, .shard = 2, .precision = Precision::kBf16});
  std::map<std::string, std::string> dtypes;
  for (const Traffic& t : step_traffic(plan, 0)) dtypes[t.label] = name_of(t.dtype);
  CHECK(dtypes == std::map<std::string, std::string>{{"tensor.forward", "bf16"},
                                                     {"tensor.backward", "bf16"},
                                                     {"tensor.loss", "fp32"},
                                                     {"data.gradients", "fp32"},
                                                     {"shard.weights", "bf16"},
                                                     {"step.norm_and_loss", "fp64"}});
}

TEST_CASE("replicated KV heads sum their weight gradients once per step and block") {
  const Plan plan = sample_plan(small_llama(), {.tensor = 4});
  const Rows rows = rows_of(plan, 2);
  // One KV head of 8 x 32, for k and for v.
  REQUIRE(rows.size() == 6);
  CHECK(rows[4] == "tensor.kv_gradients all_reduce kv_head/2 fp32[512] x5 = 10240");
}

TEST_CASE("replicated KV heads sum their biases' gradients too") {
  ModelSpec qwen2 = small_llama();
  qwen2.qkv_bias = true;
  const Rows rows = rows_of(sample_plan(qwen2, {.tensor = 4}), 2);
  REQUIRE(rows.size() == 7);
  CHECK(rows[4] == "tensor.kv_gradients all_reduce kv_head/2 fp32[512] x5 = 10240");
  CHECK(rows[5] == "tensor.kv_gradients all_reduce kv_head/2 fp32[16] x5 = 320");
}

TEST_CASE("a tied pipeline: activations, gradients and the shared embedding") {
  const Plan plan = sample_plan(small_gpt2(), {.pipeline = 3});
  CHECK(rows_of(plan, 0) == Rows{"pipeline.activations send pipeline/3 fp32[1536] x4 = 24576",
                                 "pipeline.gradients recv pipeline/3 fp32[1536] x4 = 0",
                                 "tied.gradients recv tied/2 fp32[12336] x1 = 0",
                                 "tied.weights send tied/2 fp32[12336] x1 = 49344",
                                 "step.norm_and_loss all_reduce world/3 fp64[8] x1 = 128"});
  CHECK(rows_of(plan, 1) == Rows{"pipeline.activations send pipeline/3 fp32[1536] x4 = 24576",
                                 "pipeline.activations recv pipeline/3 fp32[1536] x4 = 0",
                                 "pipeline.gradients send pipeline/3 fp32[1536] x4 = 24576",
                                 "pipeline.gradients recv pipeline/3 fp32[1536] x4 = 0",
                                 "step.norm_and_loss all_reduce world/3 fp64[8] x1 = 128"});
  CHECK(rows_of(plan, 2) == Rows{"pipeline.activations recv pipeline/3 fp32[1536] x4 = 0",
                                 "pipeline.gradients send pipeline/3 fp32[1536] x4 = 24576",
                                 "tied.gradients send tied/2 fp32[12336] x1 = 49344",
                                 "tied.weights recv tied/2 fp32[12336] x1 = 0",
                                 "step.norm_and_loss all_reduce world/3 fp64[8] x1 = 128"});
}

TEST_CASE("every send of the step has its receive on another rank") {
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    const Plan plan = sample_plan(model, {.pipeline = 3, .tensor = 2, .shard = 2, .replica = 1});
    std::map<std::string, int64_t> balance;
    for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
      for (const Traffic& t : step_traffic(plan, rank)) {
        const std::string key = t.label + "[" + std::to_string(t.count) + "]";
        if (t.op == CollectiveOp::kSend) balance[key] += t.calls;
        if (t.op == CollectiveOp::kRecv) balance[key] -= t.calls;
      }
    }
    for (const auto& messages : balance) {
      CAPTURE(messages.first);
      CHECK(messages.second == 0);
    }
  }
}
