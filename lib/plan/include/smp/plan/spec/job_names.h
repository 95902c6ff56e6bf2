#pragma once

#include <string_view>

#include "smp/plan/spec/job_spec.h"

// The words that job files, plans and reports use for the choices of a JobSpec. Pure.
namespace smp {

std::string_view name_of(ModelFamily family);   // "gpt2", "llama"
std::string_view name_of(DeviceKind device);    // "cpu", "cuda"
std::string_view name_of(Precision precision);  // "fp32", "fp64", "bf16", "fp16"
std::string_view name_of(Sharding sharding);    // "none", "optimizer_state", "gradients", ...
std::string_view name_of(Stack stack);
std::string_view name_of(MlpKind mlp);
std::string_view name_of(GeluKind gelu);      // "tanh", "erf", "sigmoid"
std::string_view name_of(QkNormOver over);    // "head", "all_heads"
std::string_view name_of(RouterKind router);  // "softmax", "sigmoid"
std::string_view name_of(BalanceOver over);   // "microbatch", "sequence", "batch"
std::string_view name_of(NormPlacement placement);
std::string_view name_of(NormKind norm);
std::string_view name_of(PositionKind positions);
std::string_view name_of(RopeScaling scaling);
std::string_view name_of(Recompute recompute);
std::string_view name_of(AttentionKind attention);
std::string_view name_of(OptimizerKind kind);  // "adamw", "sgd"
std::string_view name_of(LearningRateSchedule schedule);
std::string_view name_of(Fp8Recipe recipe);         // "delayed", "mxfp8"
std::string_view name_of(MasterKind master);        // "fp32", "remainder"
std::string_view name_of(MomentKind moment);        // "fp32", "int8"
std::string_view name_of(QuantizedKind quantized);  // "none", "nf4"
std::string_view name_of(CollectivesKind collectives);
std::string_view name_of(PipelineKind pipeline);  // "simple", "interleaved"

}  // namespace smp
