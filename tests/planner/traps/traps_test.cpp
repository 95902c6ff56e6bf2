#include "smp/planner/traps/traps.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/planner/search/search.h"

using namespace smp;
using namespace smp::traps;

namespace {

// Everything in it is a multiple of what tensor cores like.
constexpr const char* kModel =
    "model: {family: llama, num_layers: 16, hidden_size: 2048, num_heads: 16, num_kv_heads: 8, "
    "ffn_hidden_size: 8192, vocab_size: 32768, max_positions: 4096}\n"
    "training: {sequence_length: 4096, global_batch: 64, micro_batch: 1}\n"
    "parallel: {tensor_parallel_degree: 2, pipeline_parallel_degree: 1, "
    "sharded_data_parallel_degree: 4, sharding: parameters}\n";

Plan plan_of(const std::vector<std::string>& overrides, const char* cluster = "p4d.24xlarge") {
  const JobSpec job =
      jobfile::read_job({{"job.yaml", kModel}, jobfile::cluster_source(cluster)}, overrides);
  return std::get<Plan>(search::plan_job(job).best);
}

std::vector<Trap> found(const Plan& plan, double imbalance = 1.5) {
  return traps_of(plan, memory::event_peaks(plan, 0, 0, imbalance));
}

// The text of the only trap, which has this id.
std::string only_one(const std::vector<Trap>& all, const char* id) {
  REQUIRE(all.size() == 1);
  CHECK(all.front().id == id);
  return all.front().text;
}

std::string only(const std::vector<std::string>& overrides, const char* id) {
  return only_one(found(plan_of(overrides)), id);
}

}  // namespace

TEST_CASE("a plan without traps has none, and each rule has an id of its own") {
  CHECK(found(plan_of({})).empty());
  std::set<std::string_view> ids;
  for (const RuleWords& rule : rules()) {
    CAPTURE(std::string(rule.id));
    CHECK(rule.id.starts_with("smp/"));
    CHECK(ids.insert(rule.id).second);
  }
  CHECK(ids.size() == 15);
}

TEST_CASE("on CPUs nothing is said of tensor cores") {
  const Plan plan = plan_of(
      {"model.vocab_size=257", "model.ffn_hidden_size=1001", "model.hidden_size=208",
       "model.num_heads=8", "model.num_layers=1", "parallel.sharded_data_parallel_degree=2"},
      "cpu-4");
  CHECK(found(plan).empty());
}

TEST_CASE("smp/vocabulary-not-padded") {
  CHECK(only({"model.vocab_size=50257"}, "smp/vocabulary-not-padded") ==
        "vocab_size 50,257 makes 25,129 rows on each of 2 tensor ranks, no multiple of 8: rows are "
        "no multiple of 16 bytes, and matmuls take about twice as long. Set "
        "model.vocab_multiple_of: 128, which pads to 50,432 rows, a multiple of 128 x "
        "tensor_parallel_degree");
  CHECK(only({"model.vocab_size=32784"}, "smp/vocabulary-not-padded")
            .starts_with("vocab_size 32,784 makes 16,392 rows on each of 2 tensor ranks, no "
                         "multiple of 64: the last tile of each row is partly empty."));
  CHECK(found(plan_of({"model.vocab_size=50257", "model.vocab_multiple_of=128"})).empty());
}

TEST_CASE("smp/hidden-not-aligned: the hidden state, and the heads of a tensor rank") {
  CHECK(only({"model.hidden_size=2080", "model.head_dim=128"}, "smp/hidden-not-aligned") ==
        "hidden_size 2,080 is no multiple of 64: the last tile of each row is partly empty. Take "
        "2,048 or 2,112");
  CHECK(only({"model.head_dim=40", "model.num_heads=8", "parallel.tensor_parallel_degree=8",
              "parallel.sharded_data_parallel_degree=1", "parallel.sharding=none"},
             "smp/hidden-not-aligned") ==
        "8 heads of 40 make 40 columns on each of 8 tensor ranks, no multiple of 64: the last tile "
        "of each row is partly empty. Lower tensor_parallel_degree, or take a head_dim of 64");
}

TEST_CASE("smp/ffn-not-aligned: of dense MLPs and of experts") {
  CHECK(only({"model.ffn_hidden_size=8190"}, "smp/ffn-not-aligned") ==
        "ffn_hidden_size 8,190 makes 4,095 columns on each of 2 tensor ranks, no multiple of 64: "
        "rows are no multiple of 16 bytes, and matmuls take about twice as long. Take 8,064 or "
        "8,192");
  CHECK(only({"model.num_experts=8", "model.experts_per_token=2",
              "model.expert_ffn_hidden_size=1000"},
             "smp/ffn-not-aligned")
            .starts_with("expert_ffn_hidden_size 1,000 makes "));
}

TEST_CASE("smp/head-dim-not-aligned and smp/head-dim-large") {
  CHECK(only({"model.head_dim=36", "model.num_heads=32"}, "smp/head-dim-not-aligned") ==
        "head_dim 36 is no multiple of 8: kernels of flash attention pad each head, or do not take "
        "it. Take 32 or 40");
  CHECK(only({"model.head_dim=256", "model.num_heads=8"}, "smp/head-dim-large") ==
        "head_dim 256 is above 128: kernels of flash attention take smaller tiles and run slower. "
        "With 16 heads it is 128");
  CHECK(only({"model.head_dim=512", "model.num_heads=8", "model.num_kv_heads=8"},
             "smp/head-dim-large")
            .starts_with("head_dim 512 is above 128: FlashAttention has no kernel for it,"));
}

TEST_CASE("smp/small-matmuls") {
  CHECK(only({"training.sequence_length=256"}, "smp/small-matmuls") ==
        "micro_batch 1 makes matmuls of 256 tokens: an output of hidden_size 2,048 has 32 tiles of "
        "128 x 128, and 76 multiprocessors stand idle. Set micro_batch to 4 or more, if memory and "
        "global_batch allow");
  CHECK(found(plan_of({"training.sequence_length=256", "training.micro_batch=4"})).empty());
}

TEST_CASE("smp/tensor-over-hosts: a placement that spreads a tensor group") {
  const std::vector<std::string> hosts = {"cluster.hosts=8", "training.global_batch=512"};
  CHECK(found(plan_of(hosts)).empty());
  std::vector<std::string> spread = hosts;
  spread.push_back("parallel.placement_strategy=TPD");
  CHECK(only(spread, "smp/tensor-over-hosts")
            .starts_with("the 2 ranks of a tensor group are on 2 hosts: every layer's all-reduces "
                         "go between hosts, "));
}

TEST_CASE("smp/kv-heads-replicated") {
  CHECK(only({"model.num_kv_heads=1"}, "smp/kv-heads-replicated") ==
        "tensor_parallel_degree 2 is above the 1 KV heads: each KV head, its weights and its "
        "computing are on 2 ranks. With tensor_parallel_degree 1 each is on one");
}

TEST_CASE("smp/pipeline-bubble") {
  const std::vector<std::string> stages = {
      "parallel.pipeline_parallel_degree=4", "parallel.pipeline=interleaved",
      "parallel.sharded_data_parallel_degree=1", "parallel.sharding=none"};
  std::vector<std::string> few = stages;
  few.push_back("training.global_batch=4");
  const std::string text = only(few, "smp/pipeline-bubble");
  CHECK(text.starts_with("4 microbatches in 4 stages: stages wait 3"));
  CHECK(
      text.ends_with(" % of the pipeline's time. With 12 microbatches or more (a larger "
                     "global_batch, a smaller micro_batch or fewer replicas) it is below 20 %"));
  CHECK(found(plan_of(stages)).empty());  // 64 microbatches
}

TEST_CASE("smp/uneven-stages") {
  const std::string text = only({"model.num_layers=17", "parallel.pipeline_parallel_degree=4",
                                 "model.vocab_size=1024", "parallel.sharded_data_parallel_degree=1",
                                 "parallel.sharding=none", "parallel.pipeline=interleaved"},
                                "smp/uneven-stages");
  CHECK(text.starts_with("17 layers do not divide by 4 stages ("));
  CHECK(
      text.ends_with(" % more than the average, and the others wait for it. Use a degree that "
                     "divides 17, or add layers"));
}

TEST_CASE("smp/expert-imbalance: experts whose rank gets more than its share do not fit") {
  Plan plan = plan_of({"model.num_experts=8", "model.experts_per_token=2"});
  CHECK(found(plan).empty());
  int64_t usual = 0, worst = 0;
  for (const memory::EventPeak& event : memory::event_peaks(plan, 0, 0, 1.5)) {
    int64_t& most = event.event.starts_with("imbalance") ? worst : usual;
    most = std::max(most, event.bytes);
  }
  CHECK(worst > usual);
  plan.job.cluster.memory_per_process_bytes = plan.job.cluster.reserved_bytes + usual + 1;
  CHECK(only_one(found(plan), "smp/expert-imbalance")
            .starts_with("a rank whose experts get more than their share of the tokens needs "));
  CHECK(found(plan, 1.0).empty());
}

TEST_CASE("smp/batch-over-token-limit: the job may raise the limit, and is told") {
  CHECK(
      only({"training.global_batch=2048", "training.max_tokens_per_batch=16Mi"},
           "smp/batch-over-token-limit") ==
      "a step has 2,048 samples x 4,096 = 8,388,608 tokens, more than 4,194,304: beyond it larger "
      "batches rarely train a model in fewer tokens. Lower global_batch to 1,024, with fewer "
      "replicas or more tensor or pipeline parallelism");
}

TEST_CASE("smp/sequence-over-positions") {
  CHECK(only({"model.rope_scaling=llama3", "model.rope_scaling_factor=2",
              "model.rope_original_positions=1024"},
             "smp/sequence-over-positions") ==
        "sequence_length 4,096 is above rope_original_positions 1,024 x rope_scaling_factor 2 = "
        "2048: positions beyond it turn by angles that the model has not seen. Raise "
        "rope_scaling_factor or shorten the sequences");
}

TEST_CASE("smp/vision-tower") {
  CHECK(only({"model.vision_parameters=871000000"}, "smp/vision-tower") ==
        "the vision tower counts as 871,000,000 parameters on the first stage: its activations and "
        "its time are not priced");
}

TEST_CASE("smp/fp16-without-loss-scaling") {
  CHECK(only({"training.precision=fp16", "training.loss_scale.dynamic=false",
              "training.loss_scale.init_scale=1"},
             "smp/fp16-without-loss-scaling") ==
        "precision fp16 with a loss scale of 1: gradients below 6e-8 become zero. Remove "
        "loss_scale.dynamic: false, or train in bf16");
  CHECK(found(plan_of({"training.precision=fp16"})).empty());
}
