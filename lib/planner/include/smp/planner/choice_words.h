#pragma once

#include <string>

#include "smp/planner/layout_choice.h"

// A layout in words, part by part. Pure.
namespace smp {

std::string degree_words(const LayoutChoice& choice);     // "tensor 2, pipeline 4"
std::string sharding_words(const LayoutChoice& choice);   // "parameters sharded over 8"
std::string recompute_words(const LayoutChoice& choice);  // "recompute selective"
std::string schedule_words(const LayoutChoice& choice);   // "virtual 4"

// "tensor 2, pipeline 4, parameters sharded over 8, micro batch 1 x 16, recompute full".
std::string describe(const LayoutChoice& choice);

}  // namespace smp
