#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/job_spec.h"

// The names of each choice of a JobSpec, in the order of its enumerators (which count from 0).
namespace smp {

template <class E>
struct Choices;

template <>
struct Choices<ModelFamily> {
  static constexpr std::array<std::string_view, 2> kNames = {"gpt2", "llama"};
};
template <>
struct Choices<DeviceKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"cpu", "cuda"};
};
template <>
struct Choices<Precision> {
  static constexpr std::array<std::string_view, 4> kNames = {"fp32", "fp64", "bf16", "fp16"};
};
template <>
struct Choices<Sharding> {
  static constexpr std::array<std::string_view, 4> kNames = {"none", "optimizer_state", "gradients",
                                                             "parameters"};
};
template <>
struct Choices<PipelineKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"simple", "interleaved"};
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
