#pragma once

#include "reduction.h"
#include "tensors.h"
#include "work.h"

// What the files of SmpBackend's calls share.
namespace smp::pytorch {

// Of all traffic of torch's collectives, in counters and errors.
inline constexpr const char* kLabel = "pytorch";

// That tells where all of them lie; undefined: nowhere.
inline at::Tensor first_of(const std::vector<at::Tensor>& tensors) {
  return tensors.empty() ? at::Tensor() : tensors.front();
}

inline void keep(Steps& steps, const Elements& elements) { steps.buffers.push_back(elements.flat); }

}  // namespace smp::pytorch
