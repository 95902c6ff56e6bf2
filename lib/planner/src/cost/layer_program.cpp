#include "cost/layer_program.h"

#include <algorithm>

#include "cost/frozen_layers.h"
#include "cost/in_engine.h"
#include "cost/layer_parameters.h"
#include "cost/norms_apart.h"
#include "cost/routed_tokens.h"
#include "cost/state_bytes.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/program/build.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::cost {

model::LayerCall call_of(const JobSpec& job, const choice::LayoutChoice& choice) {
  model::LayerCall call;
  call.micro_batch = choice.micro_batch;
  call.sequence_length = std::max<int64_t>(1, job.training.sequence_length / choice.context);
  call.tensor_degree = choice.tensor;
  call.dtype = engine_dtype(choice.precision);
  call.sequence_parallel = choice.sequence_parallel && choice.tensor > 1;
  call.kinds = job.parallel.tensor_parallel;
  call.fusions = job.training.fusions;
  call.context = {.ring = choice.context / choice.exchange, .exchange = choice.exchange};
  call.expert_degree = choice.expert;
  call.expert_tensor_degree = std::max(1, choice.expert_tensor);
  call.fullest_experts = fullest_share(job);
  return call;
}

program::Habits habits_of(const JobSpec& job, const choice::LayoutChoice& choice, bool trains) {
  const framework::FrameworkModel& model = framework::framework_model(job);
  const double element = element_bytes(choice.precision);
  program::Habits habits;
  habits.trains = trains;
  habits.fused_kernels = model.fused_kernels || job.training.compiled;
  habits.fused_gate = model.fused_gate;
  habits.flash_attention = job.training.attention == AttentionKind::kFlash;
  habits.repeats_kv_heads = model.repeats_kv_heads;
  habits.keeps_expert_outputs = model.keeps_expert_outputs;
  habits.fused_weight_gradients = model.fused_weight_gradients;
  // Transformer Engine keeps 8 bits an element where nothing else needs the tensor
  // (pytorch/module/linear.py, saved_inputmat).
  if (is_narrow(choice.precision) && model.transformer_engine) {
    habits.narrow_bytes = narrow_bytes(job, choice.precision);
  }
  habits.logit = {2 * element, element, 2 * element};  // the softmax beside the logits
  if (model.fp32_logits && element < kFp32Bytes) {
    habits.logit = job.training.fused_loss ? model.fused_logit : model.logit;
  }
  habits.dropped =
      recomputes_mlps(job) ? program::Dropped::kFirstProducts : program::Dropped::kModules;
  habits.modules = recompute_modules(job.parallel);
  habits.norm_before_attention = has_norm_before_attention(job);
  habits.norm_before_mlp = has_norm_before_mlp(job);
  return habits;
}

bool trains(const JobSpec& job, const model::LayerSpec& layer, bool is_frozen) {
  if (is_frozen) return false;
  if (layer.kind == model::LayerKind::kHead) return trains_projection(job);
  return layer.kind == model::LayerKind::kEmbedding || trains_blocks(job);
}

program::LayerProgram layer_program(const JobSpec& job, const choice::LayoutChoice& choice,
                                    const model::LayerSpec& layer, bool is_frozen) {
  const model::LayerCall call = call_of(job, choice);
  if (runs_in_engine(job) || model::is_list(job.model)) {
    return program::build(job.model, layer, call);
  }
  ModelSpec model = job.model;  // with the vocabulary's padding
  const int64_t ranks = call.vocabulary_degree();
  model.vocab_size = static_cast<int64_t>(vocabulary_rows(job, choice)) * ranks;
  model.vocab_multiple_of = 1;
  // Counts that are rounded up grow with the samples all the same (ProgramTable).
  model::LayerCall of_one_sample = call;
  of_one_sample.micro_batch = 1;
  const bool is_trained = trains(job, layer, is_frozen);
  program::LayerProgram program =
      program::build_as(model, layer, of_one_sample, habits_of(job, choice, is_trained));
  program::set_samples(program, 1, call.micro_batch);
  return program;
}

KindPrograms kind_programs(const JobSpec& job, const choice::LayoutChoice& choice,
                           const LayerKinds& kinds) {
  KindPrograms programs;
  for (size_t i = 0; i < kinds.size(); ++i) {
    KindProgram& kind = programs.emplace_back();
    kind.program = layer_program(job, choice, kinds[i].layer, kinds[i].is_frozen);
    kind.memory = program::memory_of(kind.program);
  }
  return programs;
}

}  // namespace smp::cost
