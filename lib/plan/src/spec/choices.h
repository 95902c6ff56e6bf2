#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// The names of each choice of a JobSpec, in the order of its enumerators (which count from 0).
namespace smp {

template <class E>
struct Choices;

template <>
struct Choices<ModelFamily> {
  static constexpr std::array<std::string_view, 3> kNames = {"gpt2", "llama", "transformer"};
};
template <>
struct Choices<DeviceKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"cpu", "cuda"};
};
template <>
struct Choices<Precision> {
  static constexpr std::array<std::string_view, 6> kNames = {"fp32", "fp64", "bf16",
                                                             "fp16", "fp8",  "nvfp4"};
};
template <>
struct Choices<Sharding> {
  static constexpr std::array<std::string_view, 4> kNames = {"none", "optimizer_state", "gradients",
                                                             "parameters"};
};
template <>
struct Choices<PipelineKind> {
  static constexpr std::array<std::string_view, 5> kNames = {"simple", "interleaved", "virtual",
                                                             "zb_h1", "zb_v"};
};
template <>
struct Choices<Stack> {
  static constexpr std::array<std::string_view, 3> kNames = {"decoder", "encoder",
                                                             "encoder_decoder"};
};
template <>
struct Choices<MlpKind> {
  static constexpr std::array<std::string_view, 5> kNames = {"gelu", "relu", "swiglu", "geglu",
                                                             "squared_relu"};
};
template <>
struct Choices<RouterKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"softmax", "sigmoid"};
};
template <>
struct Choices<BalanceOver> {
  static constexpr std::array<std::string_view, 3> kNames = {"microbatch", "sequence", "batch"};
};
template <>
struct Choices<GeluKind> {
  static constexpr std::array<std::string_view, 3> kNames = {"tanh", "erf", "sigmoid"};
};
template <>
struct Choices<QkNormOver> {
  static constexpr std::array<std::string_view, 2> kNames = {"head", "all_heads"};
};
template <>
struct Choices<RopeScaling> {
  static constexpr std::array<std::string_view, 6> kNames = {"none",    "linear", "llama3",
                                                             "dynamic", "yarn",   "longrope"};
};
template <>
struct Choices<NormPlacement> {
  static constexpr std::array<std::string_view, 3> kNames = {"before", "after", "both"};
};
template <>
struct Choices<NormKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"layernorm", "rmsnorm"};
};
template <>
struct Choices<PositionKind> {
  static constexpr std::array<std::string_view, 5> kNames = {"learned", "rotary", "alibi",
                                                             "relative", "none"};
};
template <>
struct Choices<Recompute> {
  static constexpr std::array<std::string_view, 3> kNames = {"none", "selective", "full"};
};
template <>
struct Choices<AttentionKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"flash", "unfused"};
};
template <>
struct Choices<OptimizerKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"adamw", "sgd"};
};
template <>
struct Choices<Fp8Recipe> {
  static constexpr std::array<std::string_view, 4> kNames = {"delayed", "current", "blockwise",
                                                             "mxfp8"};
};
template <>
struct Choices<MasterKind> {
  static constexpr std::array<std::string_view, 4> kNames = {"fp32", "fp16", "remainder", "none"};
};
template <>
struct Choices<MomentKind> {
  static constexpr std::array<std::string_view, 5> kNames = {"fp32", "bf16", "fp16", "fp8", "int8"};
};
template <>
struct Choices<QuantizedKind> {
  static constexpr std::array<std::string_view, 5> kNames = {"none", "nf4", "nf4_double", "fp8",
                                                             "int8"};
};
template <>
struct Choices<TokenKind> {
  static constexpr std::array<std::string_view, 1> kNames = {"bytes"};
};
template <>
struct Choices<Packing> {
  static constexpr std::array<std::string_view, 3> kNames = {"concatenate", "documents", "pad"};
};
template <>
struct Choices<DataFormat> {
  static constexpr std::array<std::string_view, 5> kNames = {"text", "megatron", "nanogpt", "llmc",
                                                             "npy"};
};
template <>
struct Choices<LearningRateSchedule> {
  static constexpr std::array<std::string_view, 4> kNames = {"constant", "linear", "cosine", "wsd"};
};
template <>
struct Choices<CollectivesKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"nccl", "host"};
};

template <class E>
std::string_view choice_name(E value) {
  return Choices<E>::kNames.at(static_cast<size_t>(value));
}

template <class E>
std::vector<std::string> choice_names() {
  return {Choices<E>::kNames.begin(), Choices<E>::kNames.end()};
}

}  // namespace smp
