#include "jobfile/field_rows.h"

// How it is laid out: the section parallel.
namespace smp::jobfile {
namespace {

const Condition kMixture = {is_mixture, "model.num_experts", "model.num_experts"};

bool recomputes_parts(const JobSpec& job) {
  return job.parallel.recompute == Recompute::kSelective;
}
const Condition kSelective = {recomputes_parts, "parallel.recompute", "recompute: selective"};

bool shares_sequences(const JobSpec& job) {
  return job.parallel.context_parallel_degree.value_or(1) > 1;
}
const Condition kSharedSequences = {shares_sequences, "parallel.context_parallel_degree",
                                    "context_parallel_degree above 1"};

bool chooses_by_group(const JobSpec& job) {
  return job.cluster.device == DeviceKind::kCuda && job.parallel.framework.is_engine();
}
const Condition kByGroup = {chooses_by_group, "cluster.device",
                            "cluster.device: cuda and framework: smp"};

}  // namespace

void add_parallel_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kParallel,
       "pipeline_parallel_degree",
       SMP_AT(parallel.pipeline_parallel_degree),
       "stages of the pipeline (p)",
       {.min = 1, .max = kMostWidth, .also = {"partitions", "pp", "pipeline_model_parallel_size"}}},
      {kParallel,
       "tensor_parallel_degree",
       SMP_AT(parallel.tensor_parallel_degree),
       "ranks that share each layer's matrices (t)",
       {.min = 1, .max = kMostWidth, .also = {"tp", "tensor_model_parallel_size"}}},
      {kParallel,
       "sharded_data_parallel_degree",
       SMP_AT(parallel.sharded_data_parallel_degree),
       "ranks over which one copy of the sharded state is spread (z); a value above 1 without "
       "sharding means sharding: parameters",
       {.min = 1, .max = kMostWidth, .also = {"hybrid_shard_degree", "sdp"}}},
      {kParallel,
       "context_parallel_degree",
       SMP_AT(parallel.context_parallel_degree),
       "ranks that share each sequence (c)",
       {.min = 1, .max = kMostWidth, .also = {"cp", "context_parallel_size"}}},
      {kParallel,
       "context_exchange_degree",
       SMP_AT(parallel.context_exchange_degree),
       "of the ranks that share each sequence those that exchange heads by all-to-all (Ulysses): a "
       "divisor of c; 1 = all pass keys and values round a ring, c = none does",
       {.min = 1,
        .max = kMostWidth,
        .condition = kSharedSequences,
        .also = {"ulysses_degree", "ulysses_size", "ulysses_sequence_parallel_size"}}},
      {kParallel,
       "expert_parallel_degree",
       SMP_AT(parallel.expert_parallel_degree),
       "ranks that share a layer's experts",
       {.min = 1,
        .max = kMostWidth,
        .condition = kMixture,
        .also = {"ep", "expert_model_parallel_size", "moe_expert_parallel_size"}}},
      {kParallel,
       "expert_tensor_degree",
       SMP_AT(parallel.expert_tensor_degree),
       "ranks that share an expert's matrices; auto = tensor_parallel_degree, in our engine 1 if "
       "expert_parallel_degree is above 1",
       {.min = 1,
        .max = kMostWidth,
        .condition = kMixture,
        .also = {"etp", "expert_tensor_parallel_size"}}},
      {kParallel,
       "sequence_parallel",
       SMP_AT(parallel.sequence_parallel),
       "tensor ranks split activations by tokens where tensor parallelism leaves them whole",
       {.also = {"enable_sequence_parallel"}}},
      {kParallel, "shard_optimizer_state", SMP_AT(parallel.shard_optimizer_state),
       "true = sharding: optimizer_state over all data-parallel ranks"},
      {kParallel, "sharding", SMP_AT(parallel.sharding),
       "state that is spread over the shard axis: ZeRO stage 0, 1, 2, 3"},
      {kParallel, "pipeline", SMP_AT(parallel.pipeline),
       "simple = all forward, then all backward (GPipe); interleaved = 1F1B; virtual = Megatron's "
       "interleaving of several chunks a rank; zb_h1, zb_v = zero bubble"},
      {kParallel,
       "virtual_pipeline_degree",
       SMP_AT(parallel.virtual_pipeline_degree),
       "chunks of layers that a rank holds (v): above 1 with pipeline: virtual, 2 with zb_v",
       {.min = 1,
        .max = kMostChunks,
        .also = {"virtual_pipeline_model_parallel_size", "vpp", "num_model_chunks",
                 "num_virtual_stages_per_pipeline_rank"}}},
      {kParallel,
       "placement_strategy",
       SMP_AT(parallel.placement_strategy),
       "order of the axes over ranks, the right-most varying fastest; cluster = DPT, spread = TPD",
       {.words = {"cluster", "spread", "DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}}},
      {kParallel,
       "active_microbatches",
       SMP_AT(parallel.active_microbatches),
       "most microbatches in flight in the pipeline",
       {.min = 1, .max = kMostSamples}},
      {kParallel,
       "partition",
       SMP_AT(parallel.partition),
       "layers of each stage, e.g. [3, 3, 2], or of each chunk in the order of the model; the "
       "first may hold only the embedding, the last only the head; auto = by partition_method",
       {.min = 0, .max = kMostLayers}},
      {kParallel, "partition_method", SMP_AT(parallel.partition_method),
       "division of the layers among stages or their chunks: uniform = equal numbers of layers; "
       "parameters = equal numbers of parameters; type:REGEX = equal numbers of layers whose kind "
       "or name matches; auto = the division with the shortest slowest stage; without the key, "
       "uniform or a faster division that the search finds"},
      {kParallel, "activation_checkpointing", SMP_AT(parallel.activation_checkpointing),
       "keep only the input of each layer and recompute the rest in the backward pass: true = "
       "recompute: full"},
      {kParallel,
       "recompute",
       SMP_AT(parallel.recompute),
       "part of the forward that the backward pass recomputes: none; selective = a part of each "
       "layer (docs/recompute.md; in other frameworks the core of attention); full = whole layers",
       {.also = {"recompute_granularity", "recompute_activations"}}},
      {kParallel,
       "recompute_modules",
       SMP_AT(parallel.recompute_modules),
       "with recompute: selective, in frameworks of Megatron: core_attn, mlp, moe, moe_act, "
       "layernorm, mla_up_proj, shared_experts",
       {.computed = "[core_attn]", .condition = kSelective}},
      {kParallel,
       "recompute_layers",
       SMP_AT(parallel.recompute_layers),
       "with recompute: full, number of layers of each stage that are recomputed; auto = all",
       {.min = 1, .max = kMostLayers, .also = {"recompute_num_layers"}}},
      {kParallel,
       "activation_checkpointing_strategy",
       SMP_AT(parallel.activation_checkpointing_strategy),
       "consecutive layers that share a checkpoint with recompute: full: each = one; contiguous = "
       "all of a stage's chunk; group_N = N layers, e.g. group_2",
       {.also = {"checkpointing_strategy"}}},
      {kParallel,
       "offload_activations",
       SMP_AT(parallel.offload_activations),
       "move the kept activations to host memory",
       {.also = {"sm_activation_offloading", "cpu_offloading"}}},
      {kParallel,
       "partition_activations",
       SMP_AT(parallel.partition_activations),
       "with recompute: full and without sequence_parallel, each rank of a tensor group keeps its "
       "part of a layer's input; the backward pass gathers the parts",
       {.also = {"distribute_saved_activations"}}},
      {kParallel,
       "activation_loading_horizon",
       SMP_AT(parallel.activation_loading_horizon),
       "layers whose offloaded activations are fetched ahead",
       {.min = 1, .max = kMostLayers}},
      {kParallel,
       "offload_optimizer",
       SMP_AT(parallel.offload_optimizer),
       "keep the optimizer's state in host memory",
       {.also = {"optimizer_cpu_offload", "offload_optimizer_device"}}},
      {kParallel,
       "offload_parameters",
       SMP_AT(parallel.offload_parameters),
       "keep the shards of the parameters in host memory; needs sharding: parameters",
       {.also = {"offload_param", "offload_param_device", "fsdp_offload_params"}}},
      {kParallel,
       "prefetch_layers",
       SMP_AT(parallel.prefetch_layers),
       "with sharding: parameters, layers gathered ahead of the running one; layers that share a "
       "bucket (shard_bucket_bytes) count as one",
       {.max = kMostLayers}},
      {kParallel,
       "max_live_parameters",
       SMP_AT(parallel.max_live_parameters),
       "with sharding: parameters, most elements that a rank has gathered at once; limits "
       "gathering ahead and the small layers in a bucket; the running layer is always whole; 0 = "
       "no bound",
       {.max = kMostElements, .also = {"sdp_max_live_parameters", "stage3_max_live_parameters"}}},
      {kParallel,
       "param_persistence_threshold",
       SMP_AT(parallel.param_persistence_threshold),
       "with sharding: parameters, tensors of fewer elements (before tensor parallelism) are "
       "gathered once a step, at their first use, and stay gathered until the update; 0 = none",
       {.max = kMostElements,
        .also = {"sdp_param_persistence_threshold", "stage3_param_persistence_threshold"}}},
      {kParallel,
       "forbid",
       SMP_AT(parallel.forbid),
       "layouts that must not be chosen, e.g. [tensor_parallel_degree=8, micro_batch>=4]",
       {.example = "[tensor_parallel_degree=8, micro_batch>=4]"}},
      {kParallel,
       "framework",
       SMP_AT(parallel.framework.name),
       "framework whose memory, traffic and time the planner predicts: a name that `smp-plan "
       "frameworks` lists, the path of a framework file (docs/frameworks.md), relative to this "
       "file, or unknown",
       {.also = {"profile"}}},
      {kParallel,
       "data_collectives",
       SMP_AT(parallel.data_collectives),
       "transport of GPU tensors in the groups that the section collectives leaves auto: nccl, or "
       "host (the hosts' CPUs compute the sums); with another framework than smp, host is "
       "SageMaker's SMDDP",
       {.also = {"ddp_dist_backend", "backend"}}},
      {kParallel, "delayed_parameter_initialization",
       SMP_AT(parallel.delayed_parameter_initialization),
       "each rank initializes only the weights that it holds; the engine always does this and "
       "refuses false"},
      {kParallel, "prescaled_batch", SMP_AT(parallel.prescaled_batch),
       "all ranks of a tensor group read the same samples, and micro_batch counts the samples of "
       "the group; false (SMP's default: samples of each rank) is accepted only with "
       "tensor_parallel_degree 1, where both are equal"},
      {kParallel,
       "bucket_bytes",
       SMP_AT(parallel.bucket_bytes),
       "bytes of gradients in one reduction, in fp32 if weights have 16 bits; auto = 25MiB, and on "
       "several hosts 128KiB for each data-parallel rank, but at most a quarter of a rank's "
       "gradients",
       {.unit = Unit::kBytes, .min = 1, .max = kMostBytes, .also = {"bucket_cap_mb"}}},
      {kParallel,
       "shard_bucket_bytes",
       SMP_AT(parallel.shard_bucket_bytes),
       "with sharding: gradients or parameters, neighbouring layers smaller than this are reduced "
       "and gathered together; auto = 256KiB, and on several hosts 128KiB for each rank of the "
       "shard group, but at most the largest layer",
       {.unit = Unit::kBytes, .min = 1, .max = kMostBytes}},
      {kTensorParallel, "attention", SMP_AT(parallel.tensor_parallel.attention),
       "projections of attention, by heads"},
      {kTensorParallel, "mlp", SMP_AT(parallel.tensor_parallel.mlp), "MLPs, by width"},
      {kTensorParallel, "embedding", SMP_AT(parallel.tensor_parallel.embedding),
       "token embedding and head, by vocabulary"},
      {kCollectives,
       "tensor",
       SMP_AT(parallel.collectives.tensor),
       "activations and their gradients, in each layer",
       {.condition = kByGroup}},
      {kCollectives,
       "shard",
       SMP_AT(parallel.collectives.shard),
       "weights and gradients of the sharded state",
       {.condition = kByGroup}},
      {kCollectives,
       "replica",
       SMP_AT(parallel.collectives.replica),
       "gradients of ranks that hold the same shard",
       {.condition = kByGroup}},
      {kCollectives,
       "data",
       SMP_AT(parallel.collectives.data),
       "gradients of whole copies of the model",
       {.condition = kByGroup}},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

}  // namespace smp::jobfile
