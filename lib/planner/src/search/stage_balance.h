#pragma once

#include <string>
#include <vector>

#include "choice/resolve.h"
#include "search/pricer.h"
#include "smp/plan/layout/partition.h"
#include "smp/plan/schedule/schedule_shape.h"

// How the blocks of a layout that is priced exactly are dealt to its stages.
namespace smp::search {

// What the job says of it by itself: the list by hand; or as many parameters, or layers of a type,
// in each chunk. Empty: nothing. Throws ConfigError where a type matches no layer.
std::vector<int64_t> given_partition(const JobSpec& job, const schedule::ScheduleShape& shape);

// What the planner's seconds make of each chunk, embedding and head counted.
layout::PartitionWeights seconds_of_chunks(const ModelSpec& model,
                                           const cost::LayerSeconds& seconds);

// Blocks of each stage so that the one with the most to do has the least: blocks taken as equal,
// and the ends of the model where the shape has them. At least one for each chunk.
std::vector<int64_t> filled_stages(const layout::PartitionWeights& weights,
                                   const schedule::ScheduleShape& shape);

// Whether filled stages beat even ones by what a partition that nobody would write is worth.
bool gains_uneven_stages(const layout::PartitionWeights& weights,
                         const schedule::ScheduleShape& shape);

// Blocks of each stage, of a partition by chunks.
std::vector<int64_t> blocks_of_stages(const schedule::ScheduleShape& shape,
                                      const std::vector<int64_t>& of_chunks);

// Deals the plan's blocks as defaulted.job says, and predicts. With `auto` that is so that the
// slowest chunk is as fast as memory allows, unless the choice's own partition makes a faster step;
// where nothing is said and the search may balance, the same if it gains enough. Returns the
// reason, for people; empty where the choice's own partition stands.
std::string assign_blocks(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                          const choice::LayoutChoice& choice, Plan& plan);

// Seconds of a step by simulating its very schedule, with the fastest of the partitions that
// assign_blocks() tries; memory aside, so that no plan of the choice takes less.
double simulated_step_s(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                        const choice::LayoutChoice& choice);
// Whether that differs from the closed form: of pipelines, and of our engine's plans.
bool is_simulated(const JobSpec& job, const choice::LayoutChoice& choice);

// "stages of 13, 2 x 12, 11 layers": of the plan's partition, in the order of the model.
std::string layers_of_stages(const Plan& plan);

// Computing of the busiest stage over that of the average one.
double stage_balance(const Plan& plan);

}  // namespace smp::search
