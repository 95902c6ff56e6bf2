#pragma once

#include <vector>

#include "smp/plan/program/habits.h"
#include "smp/plan/program/liveness.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_kinds.h"

namespace smp::cost {

// The call of one microbatch on the first tensor rank of a layout.
model::LayerCall call_of(const JobSpec& job, const choice::LayoutChoice& choice);

// How the job's framework runs a layer whose weights are trained, or frozen.
program::Habits habits_of(const JobSpec& job, const choice::LayoutChoice& choice, bool trains);

// Whether a layer's weights are trained, where it is not among the first frozen ones.
bool trains(const JobSpec& job, const model::LayerSpec& layer, bool is_frozen);

// The program of a layer of some kind, and the life of its values.
struct KindProgram {
  program::LayerProgram program;
  program::LayerMemory memory;
};
using KindPrograms = std::vector<KindProgram>;

// What one rank runs of a layer: the program of our engine on CPUs, and of lists of operators, else
// that of the job's framework. Pure; any thread.
program::LayerProgram layer_program(const JobSpec& job, const choice::LayoutChoice& choice,
                                    const model::LayerSpec& layer, bool is_frozen);

// Of each kind of layer.
KindPrograms kind_programs(const JobSpec& job, const choice::LayoutChoice& choice,
                           const LayerKinds& kinds);

}  // namespace smp::cost
