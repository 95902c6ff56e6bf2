#pragma once

#include <cstdint>

#include "smp/plan/layers.h"

// Initial weights. Element i (row * cols + col) of a parameter is a function of (seed, name, i)
// alone: block i / 4 of the parameter's Philox stream gives four normals by Box-Muller in double,
// rounded once to the weight's type. So every layout starts from the same weights, whatever it
// holds of them. Pure; safe from any thread.
namespace smp {

// Fills `out` with `box` of the parameter, row by row without gaps (box.size() elements).
void fill_parameter(const ParameterSpec& parameter, const Box& box, uint64_t seed, float* out);
void fill_parameter(const ParameterSpec& parameter, const Box& box, uint64_t seed, double* out);

}  // namespace smp
