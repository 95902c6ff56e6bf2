#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule/schedule.h"

namespace smp::time {

// Seconds of one layer's actions for one microbatch.
struct LayerActionSeconds {
  double forward = 0;
  double backward = 0;  // without `weight` where the schedule puts weight gradients off
  double weight = 0;
  double recompute = 0;
  double reduce_kv = 0;
  double offload = 0;  // of what one call keeps, either way
};

// Seconds of one bucket's actions. The first three are calls, which run beside the computing.
struct BucketActionSeconds {
  double reduce = 0;
  double reduce_replicas = 0;
  double gather = 0;
  double norm = 0;
  double update = 0;
};

// Of one stage's messages from a chunk to its neighbours.
struct ChunkMessageSeconds {
  double activation = 0;  // to the chunk after
  double gradient = 0;    // to the chunk before
};

struct StageActionSeconds {
  std::vector<BucketActionSeconds> buckets;   // of its schedule
  std::vector<ChunkMessageSeconds> messages;  // by chunk
  double update_all = 0;                      // where it has no buckets
};

// What each action of a schedule takes on each rank of its stage.
struct StepActionSeconds {
  std::vector<LayerActionSeconds> layers;  // by model index
  std::vector<StageActionSeconds> stages;
  double tied_gradient = 0, tied_weight = 0;  // messages between the ends of the pipeline
  double agree = 0;                           // on norm and loss, or routers' loads, all ranks
  // By how much a call slows the computing beside it.
  double reduce_slowdown = 0, replicas_slowdown = 0;
  bool offloads_beside = false;  // transfers run beside the computing; else they are copies
};

// When an action, or a call that it has started, began and ended; seconds from the step's begin.
struct Played {
  double begin_s = 0, end_s = 0;
};

// Where the time of one stage went until its last action; they sum to its end.
struct PlayedSums {
  double computing = 0;
  double slowed = 0;    // of computing, by calls beside it
  double exposed = 0;   // waiting for gathers and reductions, and to agree on norm and loss
  double messages = 0;  // waiting for other stages
  double offloading = 0;
  double updating = 0;  // norm and update

  double end() const { return computing + slowed + exposed + messages + offloading + updating; }
};

struct PlayedStage {
  PlayedSums sums;
  double last_gradient_s = 0;   // end of its last pass
  std::vector<Played> actions;  // of its list, in order; where asked for
  std::vector<Played> calls;  // that each of them starts: reductions, gathers, messages, transfers
};

struct PlayedStep {
  double seconds = 0;  // all stages begin together
  std::vector<PlayedStage> stages;
};

enum class PlayedDetail : bool { kSums, kActions };

// Plays all stages' actions against each other: an action begins when the one before it on its
// stage has ended and what it waits for is there. Calls of one group run one after the other, as do
// messages from one stage to another, each once its receiver has asked for it. A list may begin
// with waits for gathers that the step before has started: then the updates of that step are played
// first. All stages begin a step together. Pure.
PlayedStep play_step(const schedule::Schedule& schedule, const StepActionSeconds& seconds,
                     PlayedDetail detail = PlayedDetail::kSums);

}  // namespace smp::time
