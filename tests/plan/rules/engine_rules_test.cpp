#include "smp/plan/rules/engine_rules.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "plan/list_samples.h"
#include "plan/plan_samples.h"

using namespace smp;
using namespace smp::rules;
using Texts = std::vector<std::string>;

namespace {

void set_t5(JobSpec& job) {
  job.model.stack = Stack::kEncoderDecoder;
  job.model.decoder_layers = job.model.num_layers;
  job.model.position_embedding = PositionKind::kRelative;
}

}  // namespace

TEST_CASE("the engine runs what it can, drawing each rank's own weights included") {
  Plan plan = sample_plan(gpt2_124m(), {.pipeline = 2, .tensor = 2, .shard = 2});
  CHECK(what_engine_cannot_run(plan).empty());
  plan.job.parallel.delayed_parameter_initialization = false;
  CHECK(what_engine_cannot_run(plan) ==
        Texts{"parallel.delayed_parameter_initialization: false (a rank draws the weights that it "
              "holds, never the whole model)"});
}

TEST_CASE("a rank's share is built wherever its plan is for, if the engine knows its layers") {
  Plan plan = sample_plan(gpt2_124m(), {.replica = 2048});
  plan.job.cluster.device = DeviceKind::kCuda;
  plan.job.cluster.hosts = 64;
  CHECK(what_engine_cannot_run(plan).size() == 2);
  set_t5(plan.job);
  plan.job.parallel.delayed_parameter_initialization = false;
  CHECK(what_engine_cannot_run(plan).size() == 3);
  CHECK(what_engine_cannot_build(plan).empty());
  plan.job.training.precision = Precision::kFp8;
  CHECK(what_engine_cannot_build(plan) ==
        Texts{"training.precision: fp8 or nvfp4 (the engine runs fp64, fp32, bf16 and fp16)"});
}

TEST_CASE("windows and padded evaluations run on GPUs") {
  Plan plan = sample_plan(small_llama(), {});
  plan.job.cluster.device = DeviceKind::kCuda;
  CHECK(what_engine_cannot_run(plan).empty());
  plan.job.model.sliding_window = 3;
  CHECK(what_engine_cannot_run(plan).empty());
  plan.job.training.evaluation.pad_last_batch = true;
  CHECK(what_engine_cannot_run(plan).empty());
}

TEST_CASE("layers that are priced for other engines alone are refused") {
  const auto refused = [](void (*change)(ModelSpec&)) {
    Plan plan = sample_plan(small_llama(), {});
    change(plan.job.model);
    return what_engine_cannot_run(plan);
  };
  CHECK(refused([](ModelSpec& model) { model.norm_placement = NormPlacement::kBoth; }) ==
        Texts{"model.norm_placement: after or both (the engine has norms before attention and "
              "MLP)"});
  CHECK(refused([](ModelSpec& model) { model.mlp = MlpKind::kSquaredRelu; }) ==
        Texts{"model.mlp: squared_relu (the engine runs gelu, relu, swiglu and geglu)"});
  CHECK(refused([](ModelSpec& model) { model.layer_pattern = "*-"; }) ==
        Texts{"model.layer_pattern (the engine runs layers of attention and an MLP)"});
  CHECK(refused([](ModelSpec& model) { model.vision_parameters = 1; }) ==
        Texts{"model.vision_parameters: above 0 (the engine reads tokens alone)"});
  CHECK(refused([](ModelSpec& model) {
          model.sliding_window = 3;
          model.chunked_windows = true;
        }) == Texts{"model.chunked_windows: true with a window below training.sequence_length (the "
                    "engine has sliding windows)"});
  CHECK(refused([](ModelSpec& model) {
          model.sliding_window = 3;
          model.full_attention_period = 2;
        }).empty());
}

TEST_CASE("documents in a sample are kept apart in decoders alone") {
  for (const Packing pack : {Packing::kDocuments, Packing::kPad}) {
    Plan plan = sample_plan(gpt2_124m(), {});
    plan.job.training.data_pack = pack;
    CHECK(what_engine_cannot_run(plan).empty());
    const Texts refused = {
        "training.data.pack: documents or pad in an encoder_decoder or with model.layers (the "
        "engine packs documents in decoders alone: write pack: concatenate)"};
    set_t5(plan.job);
    CHECK(what_engine_cannot_run(plan) == refused);
    plan.job.model = small_list();
    CHECK(what_engine_cannot_run(plan) == refused);
  }
}

TEST_CASE("the engine trains all weights, and no adapters") {
  Plan plan = sample_plan(gpt2_124m(), {});
  plan.job.training.lora.rank = 8;
  const Texts adapters = {
      "training.lora.rank: above 0 (the engine trains no adapters yet; parallel.framework of "
      "another "
      "framework prices such a job)"};
  CHECK(what_engine_cannot_run(plan) == adapters);
  CHECK(what_engine_cannot_build(plan) == adapters);
  plan.job.training.lora.rank = 0;
  plan.job.training.frozen = {"embedding"};
  CHECK(what_engine_cannot_run(plan) ==
        Texts{"training.frozen: parts of the model (the engine trains all weights; "
              "parallel.framework of another framework prices such a job)"});
}

TEST_CASE("a host holds 256 ranks at most") {
  CHECK(what_engine_cannot_run(sample_plan(gpt2_124m(), {.replica = 256})).empty());
  CHECK(what_engine_cannot_run(sample_plan(gpt2_124m(), {.replica = 257})) ==
        Texts{"cluster.processes_per_host: more than 256 (the engine runs up to 256 ranks on a "
              "host)"});
}

TEST_CASE("the engine runs on several hosts, with up to 1024 ranks") {
  Plan plan = sample_plan(gpt2_124m(), {.replica = 1024});
  plan.job.cluster.hosts = 128;
  plan.job.cluster.processes_per_host = 8;
  CHECK(what_engine_cannot_run(plan).empty());
  plan.degrees.replica = 2048;
  CHECK(what_engine_cannot_run(plan) ==
        Texts{"cluster.hosts: more than 1024 ranks (the engine runs up to 1024 on several hosts)"});
}

TEST_CASE("a host holds 256 groups of ranks at most, the world's included") {
  const ModelSpec gpt2 = gpt2_124m();
  // 127 pipelines, 127 pairs with a tied embedding, 2 data groups and the world are 257.
  CHECK(what_engine_cannot_run(sample_plan(gpt2, {.pipeline = 2, .replica = 127})) ==
        Texts{"parallel degrees with more than 256 groups of ranks on a host (the engine opens up "
              "to 256: raise one parallel degree, or use fewer ranks)"});
  CHECK(what_engine_cannot_run(sample_plan(gpt2, {.pipeline = 2, .replica = 126})).empty());

  // Of 4 hosts of 64 ranks each has 16 pairs for each of 4 degrees and its part of 5 large groups;
  // with the tied pairs of all ranks on hosts of 256 there are more.
  Plan hosts = sample_plan(gpt2, {.pipeline = 2, .tensor = 2, .replica = 64});
  hosts.job.cluster.hosts = 4;
  hosts.job.cluster.processes_per_host = 64;
  CHECK(what_engine_cannot_run(hosts).empty());
  hosts.degrees.replica = 128;
  hosts.job.cluster.hosts = 2;
  hosts.job.cluster.processes_per_host = 256;
  CHECK(what_engine_cannot_run(hosts).size() == 1);
}

TEST_CASE("tokens that the engine does not know are refused where a job shall run") {
  const auto lacks = [](void (*change)(JobSpec&)) {
    Plan plan = sample_plan(small_llama(), {});
    plan.job.training.steps = 10;
    plan.job.training.data_tokens = {};
    change(plan.job);
    return what_engine_lacks(plan);
  };
  const Texts of_vocabulary = {
      "model.vocab_size: above 512 (the engine has no tokenizer and reads text as bytes, which are "
      "256 tokens: give files of tokens, see docs/data.md; or train from scratch with vocab_size: "
      "256; or write training.data.tokens: bytes)"};
  const Texts of_start = {
      "training.init_from: weights that were trained on the tokens of a tokenizer (the engine has "
      "no tokenizer and reads text as bytes: give files of that tokenizer's tokens, see "
      "docs/data.md; for weights that were trained on bytes, write training.data.tokens: bytes)"};
  CHECK(lacks([](JobSpec& j) { j.model.vocab_size = 50257; }) == of_vocabulary);
  CHECK(lacks([](JobSpec& j) { j.model.vocab_size = 513; }) == of_vocabulary);
  CHECK(lacks([](JobSpec& j) { j.model.vocab_size = 512; }).empty());
  // What files hold is known where they are.
  CHECK(lacks([](JobSpec& j) {
          j.model.vocab_size = 50257;
          j.training.data_path = "corpus";
        }).empty());
  CHECK(lacks([](JobSpec& j) { j.training.init_from = "gpt2"; }) == of_start);
  CHECK(lacks([](JobSpec& j) {
          j.model.vocab_size = 50257;
          j.training.init_from = "gpt2";
          j.training.data_tokens = TokenKind::kBytes;
        }).empty());
  // What is only planned may have any vocabulary.
  CHECK(lacks([](JobSpec& j) {
          j.model.vocab_size = 50257;
          j.training.steps = 0;
        }).empty());
}

TEST_CASE("every setting that the engine lacks is refused by its name") {
  const auto refused = [](void (*change)(JobSpec&)) {
    Plan plan = sample_plan(small_llama(), {});
    change(plan.job);
    const Texts texts = what_engine_cannot_run(plan);
    return texts.empty() ? std::string("nothing") : texts.front();
  };
  CHECK(refused([](JobSpec&) {}) == "nothing");
  CHECK(refused([](JobSpec& j) { j.training.precision = Precision::kFp8; }) ==
        "training.precision: fp8 or nvfp4 (the engine runs fp64, fp32, bf16 and fp16)");
  CHECK(refused([](JobSpec& j) { j.training.precision = Precision::kBf16; }) == "nothing");
  CHECK(refused([](JobSpec& j) { j.training.precision = Precision::kFp16; }) == "nothing");
  CHECK(refused([](JobSpec& j) { j.training.accumulate_gradients_in_fp32 = false; }) ==
        "training.accumulate_gradients_in_fp32: false (the engine sums gradients in fp32)");
  CHECK(refused([](JobSpec& j) { j.training.attention = AttentionKind::kUnfused; }) ==
        "training.attention: unfused (the engine runs flash)");
  CHECK(refused([](JobSpec& j) { j.training.fused_loss = true; }) ==
        "training.fused_loss: true (the engine has its own loss kernels)");
  CHECK(refused([](JobSpec& j) { j.training.compiled = true; }) ==
        "training.compiled: true (the engine is compiled C++ and does not use torch.compile)");
  CHECK(refused([](JobSpec& j) { j.cluster.device = DeviceKind::kCuda; }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          j.cluster.device = DeviceKind::kCuda;
          set_t5(j);
        }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          j.cluster.device = DeviceKind::kCuda;
          j.parallel.delayed_parameter_initialization = false;
        }) ==
        "parallel.delayed_parameter_initialization: false (a rank draws the weights that it holds, "
        "never the whole model)");
  CHECK(refused([](JobSpec& j) { j.model.rope_scaling = RopeScaling::kDynamic; }) ==
        "model.rope_scaling: dynamic (the engine runs none, linear, llama3, yarn and longrope)");
  CHECK(refused([](JobSpec& j) { j.model.rope_scaling = RopeScaling::kLongRope; }) ==
        "model.rope_scaling: longrope without rope_short_factors and rope_long_factors, or with "
        "more than 128 elements of a head that rotate");
  CHECK(refused([](JobSpec& j) { j.model.rope_scaling = RopeScaling::kLlama3; }) == "nothing");
  CHECK(refused([](JobSpec& j) { j.model.sliding_window = 3; }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          set_t5(j);
          j.model.sliding_window = j.training.sequence_length - 1;
        }) ==
        "model.sliding_window: below training.sequence_length in an encoder_decoder (the engine "
        "has windows in decoders alone)");
  CHECK(refused([](JobSpec& j) {
          set_t5(j);
          j.model.sliding_window = j.training.sequence_length;
        }) == "nothing");
  CHECK(refused([](JobSpec& j) { j.training.batch_ramp_start = 2; }) ==
        "training.batch_ramp_start: above 0 (the engine runs one batch size)");
  CHECK(refused([](JobSpec& j) { j.model.stack = Stack::kEncoder; }) ==
        "model.stack: encoder (the engine runs decoder and encoder_decoder)");
  CHECK(refused([](JobSpec& j) { j.model.position_embedding = PositionKind::kAlibi; }) ==
        "model.position_embedding: alibi (the engine runs learned, rotary, relative and none)");
  const char* const kTogether =
      "model.position_embedding: relative in a decoder, or another one in an encoder_decoder (the "
      "engine runs relative positions in an encoder_decoder, and only there)";
  CHECK(refused([](JobSpec& j) { j.model.position_embedding = PositionKind::kRelative; }) ==
        kTogether);
  CHECK(refused(set_t5) == "nothing");
  CHECK(refused([](JobSpec& j) {
          set_t5(j);
          j.model.position_embedding = PositionKind::kRotary;
        }) == kTogether);
  CHECK(refused([](JobSpec& j) {
          set_t5(j);
          j.model.parallel_residual = true;
        }) ==
        "model.parallel_residual: true in an encoder_decoder (the engine runs its branches one "
        "after the other)");
  // Of dense decoders every other attribute runs.
  CHECK(refused([](JobSpec& j) {
          j.model.family = ModelFamily::kTransformer;
          j.model.position_embedding = PositionKind::kNone;
          j.model.mlp = MlpKind::kGeglu;
          j.model.norm = NormKind::kRmsNorm;
          j.model.qkv_bias = j.model.attention_output_bias = j.model.mlp_bias = true;
          j.model.head_bias = j.model.qk_norm = true;
          j.model.parallel_residual = j.model.shared_norm = true;
        }) == "nothing");
  const auto with_experts = [](void (*change)(JobSpec&)) {
    Plan plan = sample_plan(small_llama(), {});
    ModelSpec& model = plan.job.model;
    model.num_experts = 4;
    model.experts_per_token = 2;
    model.expert_ffn_hidden_size = 8;
    change(plan.job);
    const Texts texts = what_engine_cannot_run(plan);
    return texts.empty() ? std::string("nothing") : texts.front();
  };
  CHECK(with_experts([](JobSpec&) {}) == "nothing");
  CHECK(
      with_experts([](JobSpec& j) { j.model.parallel_residual = true; }) ==
      "model.parallel_residual: true with num_experts (the engine runs experts behind attention)");
  CHECK(with_experts([](JobSpec& j) { j.model.mlp_bias = true; }) == "nothing");
  CHECK(with_experts([](JobSpec& j) {
          j.model.mlp_bias = true;
          j.model.shared_expert_ffn_hidden_size = 8;
        }) ==
        "model.mlp_bias: true with shared_expert_ffn_hidden_size (the engine runs shared experts "
        "without biases)");
  const auto set_limits = [](JobSpec& j) {
    j.model.glu_limit = 7;
    j.model.glu_offset = 1;
  };
  const char* const kLimits =
      "model.glu_limit or glu_offset: above 0 with dense layers (the engine has them in experts "
      "alone)";
  CHECK(with_experts(set_limits) == "nothing");
  CHECK(with_experts([](JobSpec& j) {
          j.model.glu_limit = 7;
          j.model.first_dense_layers = 1;
        }) == kLimits);
  CHECK(refused([](JobSpec& j) { j.model.glu_offset = 1; }) == kLimits);
  const char* const kSinks =
      "model.attention_sinks: true with latent attention or in an encoder_decoder (the engine runs "
      "them in the plain attention of decoders)";
  CHECK(with_experts([](JobSpec& j) { j.model.attention_sinks = true; }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          set_t5(j);
          j.model.attention_sinks = true;
        }) == kSinks);
  const char* const kAllHeads =
      "model.qk_norm_over: all_heads with layernorm or in an encoder_decoder (the engine runs such "
      "norms in decoders, as RMS norms)";
  CHECK(with_experts([](JobSpec& j) {
          j.model.qk_norm = true;
          j.model.qk_norm_over = QkNormOver::kAllHeads;
        }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          j.model.qk_norm = true;
          j.model.qk_norm_over = QkNormOver::kAllHeads;
          j.model.norm = NormKind::kLayerNorm;
        }) == kAllHeads);
  CHECK(refused([](JobSpec& j) {
          set_t5(j);
          j.model.norm = NormKind::kRmsNorm;
          j.model.qk_norm = true;
          j.model.qk_norm_over = QkNormOver::kAllHeads;
        }) == kAllHeads);
  CHECK(with_experts([](JobSpec& j) {
          j.model.router_balance_loss = 0.01;
          j.model.router_balance_over = BalanceOver::kBatch;
          j.training.microbatches = 2;
          j.parallel.pipeline = PipelineKind::kInterleaved;
        }) ==
        "model.router_balance_over: batch with a backward before the step's last forward (the "
        "engine counts all choices first: write parallel.pipeline: simple without "
        "active_microbatches, or training.microbatches: 1)");
  CHECK(with_experts([](JobSpec& j) { j.model.pad_experts_to_capacity = true; }) ==
        "model.pad_experts_to_capacity: true (the engine gives an expert the rows that it takes)");
  CHECK(with_experts([](JobSpec& j) { j.parallel.expert_parallel_degree = 2; }) == "nothing");
  CHECK(with_experts([](JobSpec& j) {
          j.parallel.expert_parallel_degree = 2;
          j.cluster.device = DeviceKind::kCuda;
        }) ==
        "parallel.expert_parallel_degree: above 1 with cluster.device: cuda (on GPUs the engine "
        "shares experts over the tensor ranks)");
  CHECK(with_experts([](JobSpec& j) {
          j.parallel.expert_parallel_degree = j.parallel.tensor_parallel_degree = 2;
          j.parallel.tensor_parallel.mlp = false;
        }) ==
        "parallel.expert_parallel_degree: above 1 with tensor_parallel.mlp: false (tensor ranks "
        "that share no MLP have the same tokens, and would send them twice)");
  CHECK(with_experts([](JobSpec& j) { j.cluster.device = DeviceKind::kCuda; }) == "nothing");
  CHECK(
      refused([](JobSpec& j) {
        j.model.kv_lora_rank = 4;
        j.model.norm = NormKind::kLayerNorm;
      }) ==
      "model.kv_lora_rank: above 0 with layernorm, qkv_bias, qk_norm or another num_kv_heads than "
      "num_heads (the engine's latent attention has RMSNorm, no biases and no norms of heads, "
      "and makes keys for every head)");
  CHECK(refused([](JobSpec& j) { j.model.num_mtp_layers = 1; }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          j.model.num_mtp_layers = 1;
          j.cluster.device = DeviceKind::kCuda;
        }) ==
        "model.num_mtp_layers: above 0 with cluster.device: cuda (the engine predicts further "
        "tokens on CPUs)");
  CHECK(refused([](JobSpec& j) { j.training.optimizer.variance_dtype = MomentKind::kBf16; }) ==
        "training.optimizer.master_weights, momentum_dtype or variance_dtype: other than fp32 (the "
        "engine keeps its optimizer's state in fp32)");
  CHECK(refused([](JobSpec& j) { j.model.vocab_multiple_of = 128; }) ==
        "model.vocab_multiple_of: above 1 (the engine does not pad the vocabulary)");
  CHECK(refused([](JobSpec& j) { j.parallel.context_parallel_degree = 2; }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          j.parallel.context_parallel_degree = 2;
          j.model.expert_capacity_factor = 1;
        }) ==
        "model.expert_capacity_factor: above 0 with context_parallel_degree above 1 (a full expert "
        "takes the tokens of whole sequences with the largest weights)");
  CHECK(refused([](JobSpec& j) {
          j.parallel.context_parallel_degree = 2;
          j.model.stack = Stack::kEncoderDecoder;
          j.model.position_embedding = PositionKind::kRelative;
        }) ==
        "model.stack: encoder_decoder with context_parallel_degree above 1 (the engine shares the "
        "sequences of decoders: their causal attention has an order that slices balance)");
  CHECK(refused([](JobSpec& j) {
          j.parallel.context_parallel_degree = 2;
          j.cluster.device = DeviceKind::kCuda;
        }) ==
        "parallel.context_exchange_degree: below context_parallel_degree with cluster.device: cuda "
        "(on GPUs the engine exchanges heads, and passes no keys round a ring)");
  CHECK(refused([](JobSpec& j) { j.parallel.sequence_parallel = true; }) == "nothing");
  CHECK(refused([](JobSpec& j) { j.parallel.tensor_parallel.mlp = false; }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          set_t5(j);
          j.parallel.sequence_parallel = true;
        }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          set_t5(j);
          j.parallel.tensor_parallel = {.attention = false, .embedding = false};
        }) == "nothing");
  CHECK(refused([](JobSpec& j) { j.parallel.offload_optimizer = true; }) == "nothing");
  CHECK(refused([](JobSpec& j) {
          j.parallel.offload_optimizer = true;
          j.training.precision = Precision::kFp32;
          j.training.optimizer.kind = OptimizerKind::kSgd;
          j.training.optimizer.momentum = 0;
        }) ==
        "parallel.offload_optimizer: true with sgd without momentum in fp32 or fp64 (this "
        "optimizer has no state to offload)");
  CHECK(refused([](JobSpec& j) { j.parallel.partition_activations = true; }) ==
        "parallel.partition_activations: true (the engine does not partition activations)");
  CHECK(refused([](JobSpec& j) {
          j.parallel.offload_parameters = true;
          j.parallel.sharded_data_parallel_degree = 2;
        }) ==
        "parallel.offload_parameters: true without offload_optimizer: true (the engine updates "
        "offloaded weights on the host and needs the optimizer state there)");
  CHECK(refused([](JobSpec& j) {
          j.parallel.offload_parameters = j.parallel.offload_optimizer = true;
          j.parallel.sharded_data_parallel_degree = 1;
        }) ==
        "parallel.offload_parameters: true with sharded_data_parallel_degree: 1 (the engine "
        "offloads shards: write a degree above 1)");
  CHECK(refused([](JobSpec& j) { j.parallel.framework.name = "megatron-core"; }) ==
        "parallel.framework: other than smp (plans of other frameworks are for pricing: write "
        "framework: smp and plan again)");
  CHECK(refused([](JobSpec& j) { j.parallel.data_collectives = CollectivesKind::kHost; }) ==
        "parallel.data_collectives: host with cluster.device: cpu (collectives of CPU tensors have "
        "one transport: leave the key out)");
  CHECK(refused([](JobSpec& j) {
          j.cluster.device = DeviceKind::kCuda;
          j.parallel.data_collectives = CollectivesKind::kHost;
        }) == "nothing");
}

TEST_CASE("an encoder_decoder's KV heads are on one tensor rank each") {
  Plan plan = sample_plan(small_llama(), {.tensor = small_llama().num_kv_heads});
  set_t5(plan.job);
  CHECK(what_engine_cannot_run(plan).empty());
  plan = sample_plan(small_llama(), {.tensor = 2 * small_llama().num_kv_heads});
  set_t5(plan.job);
  CHECK(what_engine_cannot_run(plan) ==
        Texts{"model.stack: encoder_decoder on more tensor ranks than KV heads (the engine does "
              "not replicate KV heads of an encoder_decoder: write a tensor_parallel_degree of at "
              "most num_kv_heads)"});
}

TEST_CASE("lists of layers are of 64, 32 and 16 bits") {
  for (const Precision precision :
       {Precision::kFp64, Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    CHECK(what_engine_cannot_run(sample_plan(small_list(), {.precision = precision})).empty());
  }
}

TEST_CASE("lists of layers are trained on CPUs") {
  Plan plan = sample_plan(small_list(), {});
  plan.job.cluster.device = DeviceKind::kCuda;
  CHECK(what_engine_cannot_run(plan) ==
        Texts{"cluster.device: cuda with model.layers (the engine runs lists of layers on cpu)"});
}

TEST_CASE("lists of layers refuse sequence_parallel, selective recompute and single kinds") {
  Plan plan = sample_plan(small_list(), {});
  CHECK(what_engine_cannot_run(plan).empty());
  plan.job.parallel.sequence_parallel = true;
  plan.job.parallel.tensor_parallel.mlp = false;
  plan.job.parallel.recompute = Recompute::kSelective;
  CHECK(
      what_engine_cannot_run(plan) ==
      Texts{"model.layers with sequence_parallel or context_parallel_degree (a list of layers "
            "reads images, which have no sequence)",
            "model.layers with recompute: selective (selective recomputes a part of each "
            "transformer block, and a list of layers has no blocks: write recompute: full)",
            "model.layers with a kind of parallel.tensor_parallel: false (tensor ranks share every "
            "matrix of a list)"});
}
