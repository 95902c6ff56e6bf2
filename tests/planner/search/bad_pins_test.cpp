#include <doctest/doctest.h>

#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/planner/choice/legality.h"

// Pins that no layout of a cluster can have, with the exact words: odd clusters, prime counts, one
// rank.
using namespace smp;
using namespace smp::choice;
using namespace smp::jobfile;

namespace {

struct Case {
  const char* model;
  const char* cluster;
  const char* parallel;
  const char* message;
};

// 13 layers, 16 heads, 4 KV heads, 8 experts, sequence 4096.
constexpr const char* kMixture =
    "family: llama, num_layers: 13, hidden_size: 256, num_heads: 16, num_kv_heads: 4, "
    "ffn_hidden_size: 512, vocab_size: 1000, max_positions: 4096, num_experts: 8, "
    "experts_per_token: 2";
constexpr const char* kPrime =
    "num_layers: 31, hidden_size: 248, num_heads: 31, vocab_size: 1000, max_positions: 1021";
// Of the matrices with whole inputs the first has 4 outputs, the last 10.
constexpr const char* kList =
    "name: list, input: {channels: 1, height: 8, width: 8}, layers: [{type: conv2d, out: 4, "
    "kernel: 3}, flatten, {type: linear, out: 5}, {type: linear, out: 10}], loss: cross_entropy";

constexpr Case kCases[] = {
    {kList, "hosts: 1, processes_per_host: 8", "tensor_parallel_degree: 8",
     "parallel.tensor_parallel_degree: 8: model.layers[0] (conv2d) has 4 outputs, fewer than 8; "
     "legal values: 1, 2, 4; nearest: 4"},
    {kPrime, "hosts: 1, processes_per_host: 1", "tensor_parallel_degree: 2",
     "parallel.tensor_parallel_degree: 2: processes_per_host (1) is not divisible by 2; legal "
     "values: 1; nearest: 1"},
    {kPrime, "hosts: 1, processes_per_host: 1", "pipeline_parallel_degree: 2",
     "parallel.pipeline_parallel_degree: 2: pipeline_parallel_degree (2) does not divide the 1 "
     "process of the cluster (1 host x 1); legal values: 1; nearest: 1"},
    {kPrime, "hosts: 1, processes_per_host: 1", "sharded_data_parallel_degree: 2",
     "parallel.sharded_data_parallel_degree: 2: sharded_data_parallel_degree (2) does not divide "
     "the data-parallel degree (1); legal values: 1; nearest: 1"},
    {kMixture, "hosts: 1, processes_per_host: 1", "context_parallel_degree: 2",
     "parallel.context_parallel_degree: 2: context_parallel_degree (2) does not divide the 1 "
     "process of the cluster (1 host x 1); legal values: 1; nearest: 1"},
    {kMixture, "hosts: 1, processes_per_host: 1", "expert_parallel_degree: 2",
     "parallel.expert_parallel_degree: 2: expert_parallel_degree (2) x expert_tensor_degree (1) = "
     "2 does not divide the 1 rank of a stage; legal values: 1; nearest: 1"},
    {kMixture, "hosts: 2, processes_per_host: 7", "tensor_parallel_degree: 2",
     "parallel.tensor_parallel_degree: 2: processes_per_host (7) is not divisible by 2; legal "
     "values: 1; nearest: 1"},
    {kMixture, "hosts: 2, processes_per_host: 7", "tensor_parallel_degree: 7",
     "parallel.tensor_parallel_degree: 7: num_heads (16) is not divisible by 7; legal values: 1; "
     "nearest: 1"},
    {kMixture, "hosts: 2, processes_per_host: 7", "pipeline_parallel_degree: 2",
     "parallel.pipeline_parallel_degree: 2: 2 stages x tensor 1 = 2 neither divides "
     "processes_per_host (7) nor is a multiple of it; legal values: 1, 7; nearest: 1, 7"},
    {kMixture, "hosts: 2, processes_per_host: 7", "pipeline_parallel_degree: 14",
     "parallel.pipeline_parallel_degree: 14: pipeline_parallel_degree (14) exceeds num_layers "
     "(13): every stage needs at least one layer; legal values: 1, 7; nearest: 7"},
    {kMixture, "hosts: 2, processes_per_host: 7", "sharded_data_parallel_degree: 4",
     "parallel.sharded_data_parallel_degree: 4: sharded_data_parallel_degree (4) does not divide "
     "the data-parallel degree (14); legal values: 1, 2, 7, 14; nearest: 2, 7"},
    {kMixture, "hosts: 2, processes_per_host: 7", "context_parallel_degree: 4",
     "parallel.context_parallel_degree: 4: context_parallel_degree (4) does not divide the 14 "
     "processes of the cluster (2 hosts x 7); legal values: 1, 2; nearest: 2"},
    {kMixture, "hosts: 2, processes_per_host: 7", "expert_parallel_degree: 4",
     "parallel.expert_parallel_degree: 4: expert_parallel_degree (4) x expert_tensor_degree (1) = "
     "4 does not divide the 14 ranks of a stage; legal values: 1, 2; nearest: 2"},
    {kMixture, "hosts: 4, processes_per_host: 8", "tensor_parallel_degree: 16",
     "parallel.tensor_parallel_degree: 16: processes_per_host (8) is not divisible by 16; legal "
     "values: 1, 2, 4, 8; nearest: 8"},
    {kMixture, "hosts: 3, processes_per_host: 8", "pipeline_parallel_degree: 16",
     "parallel.pipeline_parallel_degree: 16: pipeline_parallel_degree (16) exceeds num_layers "
     "(13): every stage needs at least one layer; legal values: 1, 2, 3, 4, 6, 8, 12; nearest: 12"},
    {kMixture, "hosts: 3, processes_per_host: 8", "pipeline_parallel_degree: 5",
     "parallel.pipeline_parallel_degree: 5: 5 stages x tensor 1 = 5 neither divides "
     "processes_per_host (8) nor is a multiple of it; legal values: 1, 2, 3, 4, 6, 8, 12; nearest: "
     "4, 6"},
    {kPrime, "hosts: 31, processes_per_host: 1", "tensor_parallel_degree: 31",
     "parallel.tensor_parallel_degree: 31: processes_per_host (1) is not divisible by 31; legal "
     "values: 1; nearest: 1"},
    {kPrime, "hosts: 32, processes_per_host: 1", "pipeline_parallel_degree: 32",
     "parallel.pipeline_parallel_degree: 32: pipeline_parallel_degree (32) exceeds num_layers "
     "(31): every stage needs at least one layer; legal values: 1, 2, 4, 8, 16; nearest: 16"},
    {kPrime, "hosts: 1, processes_per_host: 8", "tensor_parallel_degree: 8",
     "parallel.tensor_parallel_degree: 8: num_heads (31) is not divisible by 8; legal values: 1; "
     "nearest: 1"},
    {kMixture, "hosts: 1, processes_per_host: 8",
     "{pipeline_parallel_degree: 2, tensor_parallel_degree: 2, sharded_data_parallel_degree: 8}",
     "parallel.sharded_data_parallel_degree: 8: sharded_data_parallel_degree (8) does not divide "
     "the data-parallel degree (2); legal values: 1, 2; nearest: 2"},
    {kMixture, "hosts: 1, processes_per_host: 8",
     "{context_parallel_degree: 4, sharded_data_parallel_degree: 4}",
     "parallel.sharded_data_parallel_degree: 4: sharded_data_parallel_degree (4) does not divide "
     "the data-parallel degree (2); legal values: 1, 2; nearest: 2"},
};

std::string braced(const std::string& text) { return text[0] == '{' ? text : "{" + text + "}"; }

}  // namespace

TEST_CASE("each pin that no layout can have is refused with its equation") {
  for (const Case& one : kCases) {
    CAPTURE(one.parallel);
    const JobSpec job =
        read_job({{"job.yaml", "model: " + braced(one.model) + "\ncluster: " + braced(one.cluster) +
                                   "\nparallel: " + braced(one.parallel) + "\n"}});
    std::string message = "no error";
    try {
      require_legal_pins(job);
    } catch (const ConfigError& error) {
      message = error.what();
    }
    CHECK(message == std::string(one.message));
  }
}
