#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/job_spec.h"

namespace smp {

struct Plan;

// A Schedule is one training step as data: for each stage the ordered list of actions that each of
// its ranks executes (ranks of a stage differ only in their tensor and data coordinates). Made once
// from the plan, priced by the planner, proved by verify(), executed by the runtime.
//
// Words: a *microbatch* is what passes through the pipeline at once; *live* on a stage are the
// microbatches whose forward has begun there and whose backward has not ended. A *channel* is the
// ordered pair (sending stage, receiving stage); messages of a channel arrive in the order sent.
enum class ActionKind {
  kReceive,      // start receiving `payload` of `microbatch` from stage `peer`
  kReceiveWait,  // its data are there
  kSend,         // start sending
  kSendWait,     // its buffer may be released
  kForward,      // layer `layer`, microbatch `microbatch`
  kBackward,     // input and weight gradients of the same
  kReduceKv,     // sum the gradients of replicated KV heads of `layer` over the tensor ranks
  kReduce,       // start reducing gradient bucket `bucket` over the data-parallel ranks
  kReduceWait,
  kStep,    // norm, clipping, optimizer; everything is reduced by now
  kGather,  // start gathering the updated weights of `bucket` over the shard ranks
  kGatherWait,
};
std::string_view name_of(ActionKind kind);

enum class Payload { kNone, kActivation, kGradient, kTiedGradient, kTiedWeight };
std::string_view name_of(Payload payload);

struct Action {
  ActionKind kind = ActionKind::kForward;
  Payload payload = Payload::kNone;
  int64_t microbatch = -1;
  int64_t layer = -1;   // model index
  int64_t bucket = -1;  // index in RankLayout::buckets
  int64_t peer = -1;    // stage
  bool operator==(const Action&) const = default;
};
std::string to_string(const Action& action);  // e.g. "forward microbatch 2 layer 3"

struct Schedule {
  int64_t stages = 1;
  int64_t microbatches = 1;
  std::vector<int64_t> live_bound;  // per stage: live microbatches that the schedule promises
  std::vector<std::vector<Action>> actions;  // per stage
};

// Everything a schedule depends on. Layers are model indices.
struct ScheduleParameters {
  PipelineKind kind = PipelineKind::kInterleaved;
  int64_t microbatches = 1;
  int64_t active_microbatches = 0;  // cap on live microbatches; 0 = the schedule's own count
  std::vector<std::vector<int64_t>> layers;               // per stage, forward order
  std::vector<std::vector<int64_t>> bucket_first_layers;  // per stage; empty = none
  bool sharded = false;             // gather the updated weights of each bucket after the step
  bool tied_across_stages = false;  // first and last stage share the embedding
  bool kv_replicated = false;
};

ScheduleParameters schedule_parameters(const Plan& plan);
Schedule make_schedule(const ScheduleParameters& parameters);

// Live microbatches of `stage` under the schedule: the most at any time, by walking its actions.
int64_t max_live_microbatches(const Schedule& schedule, int64_t stage);

// Simulates all stages with sends that need their receiver (nothing is buffered) and channels that
// keep their order, and proves: every send meets its receive, nobody waits for ever, a microbatch
// passes each layer forward and backward once and in order, data are there before they are used,
// the live bound is kept. Returns nothing when all hold, else the counter-example, for people.
std::optional<std::string> verify(const Schedule& schedule, const ScheduleParameters& parameters);

}  // namespace smp
