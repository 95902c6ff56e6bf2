#pragma once

#include <optional>
#include <string>

#include "smp/plan/schedule/schedule_parameters.h"

// The schedule that a plan asks for, and what its proof takes for granted. Pure.
namespace smp {
struct Plan;
struct TrainingSpec;
}  // namespace smp

namespace smp::layout {

schedule::ScheduleShape schedule_shape(const Plan& plan);
schedule::ScheduleParameters schedule_parameters(const Plan& plan);

// Whether microbatches may have different numbers of tokens that count in the loss.
bool counts_vary(const TrainingSpec& training);

// Whether a bucket's update waits for the norm of all gradients; and why, for people.
bool updates_wait(const TrainingSpec& training);
std::optional<std::string> why_updates_wait(const TrainingSpec& training);

// Proves for all ranks what verify() assumes of the ranks of a stage. Each rank has a place of its
// own in the mesh. The groups of each axis cut the world. The members of a group that reduces or
// gathers are of one stage, so they start the same collectives in the same order. Returns the first
// violation, or nothing.
std::optional<std::string> verify_groups(const Plan& plan);

}  // namespace smp::layout
