#pragma once

#include "smp/plan/program/program.h"

namespace smp::program {

// Whether there is a program for the layer: whether the engine runs its kind.
bool has_program(const ModelSpec& model, const model::LayerSpec& layer);

// Whether two layers of a model have the same program, whose parameters are their own.
bool are_alike(const ModelSpec& model, const model::LayerSpec& a, const model::LayerSpec& b);

// The program of one of the kinds that the engine runs, with all fusions (fusions.h).
LayerProgram build(const ModelSpec& model, const model::LayerSpec& layer,
                   const model::LayerCall& call);
// As the builders make it: one operation for each step of the mathematics.
LayerProgram build_unfused(const ModelSpec& model, const model::LayerSpec& layer,
                           const model::LayerCall& call);

}  // namespace smp::program
