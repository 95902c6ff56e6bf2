#pragma once

#include <cstdint>

#include "smp/plan/model/layers.h"

// Initial weights. Element i (row * cols + col) of a parameter is a function of (seed, name, i)
// only: block i / 4 of the parameter's Philox stream gives four normals by Box-Muller in double,
// rounded once to the weight's type. So every layout starts from the same weights. Pure; safe from
// any thread.
namespace smp::parameters {

// Fills `out` with elements [begin, end) of `box` of the parameter, counted row by row.
void fill_parameter(const model::ParameterSpec& parameter, const model::Box& box, uint64_t seed,
                    int64_t begin, int64_t end, float* out);
void fill_parameter(const model::ParameterSpec& parameter, const model::Box& box, uint64_t seed,
                    int64_t begin, int64_t end, double* out);

// All of `box`.
template <typename T>
void fill_parameter(const model::ParameterSpec& parameter, const model::Box& box, uint64_t seed,
                    T* out) {
  fill_parameter(parameter, box, seed, 0, box.size(), out);
}

}  // namespace smp::parameters
