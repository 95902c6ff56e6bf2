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
// Words: a *microbatch* is what passes through the pipeline at once. A *chunk* is a run of layers
// that a stage holds; most schedules have one a stage. *Live* on a stage is a microbatch in a chunk
// whose forward has begun there and whose last gradient has not ended. A *channel* is the ordered
// pair (sending stage, receiving stage); messages of a channel arrive in the order sent.
enum class ActionKind : uint8_t {
  kReceive,      // start receiving `payload` of `microbatch` from stage `peer`
  kReceiveWait,  // its data are there
  kSend,         // start sending
  kSendWait,     // its buffer may be released
  kForward,      // layer `layer`, microbatch `microbatch`
  kBackward,     // gradients of the same: input and weights, or the input's alone where kWeight is
  kWeight,       // the weights' gradients, where the schedule puts them off
  kRecompute,    // the forward of the same again, of a layer that kept its input or nothing
  kOffload,      // what a call keeps goes to host memory
  kFetch,        // and comes back
  kReduceKv,     // sum the gradients of replicated KV heads of `layer` over the tensor ranks
  kReduce,       // start reducing gradient bucket `bucket` over the data-parallel ranks
  kReduceWait,
  kStep,    // the ranks agree on norm and loss, and so on clipping; everything is reduced by now
  kUpdate,  // the optimizer updates what this rank owns of `bucket`; -1 = of all its weights
  kGather,  // start gathering the weights of `bucket` over the shard ranks
  kGatherWait,
  kFree,  // the gathered weights of `bucket` are used no more: their buffer may take others
};
std::string_view name_of(ActionKind kind);

enum class Payload : uint8_t { kNone, kActivation, kGradient, kTiedGradient, kTiedWeight };
std::string_view name_of(Payload payload);

// 20 bytes: the step of a thousand stages has ten million of them.
struct Action {
  ActionKind kind = ActionKind::kForward;
  Payload payload = Payload::kNone;
  int16_t chunk = 0;  // of this stage, that computes, or makes or uses the payload
  int32_t microbatch = -1;
  int32_t layer = -1;   // model index
  int32_t bucket = -1;  // index in RankLayout::buckets
  int32_t peer = -1;    // stage
  bool operator==(const Action&) const = default;
};
// E.g. "forward microbatch 2 layer 3", "backward microbatch 2 chunk 1 layer 9"; chunk 0 goes
// unsaid.
std::string to_string(const Action& action);

struct Schedule {
  int64_t stages = 1;
  int64_t microbatches = 1;
  std::vector<int64_t> live_bound;  // per stage: most that are live, as the schedule promises
  std::vector<std::vector<Action>> actions;  // per stage
};

// The numbers on which the order of passes depends.
struct ScheduleShape {
  PipelineKind kind = PipelineKind::kInterleaved;
  int64_t stages = 1;
  int64_t virtual_stages = 1;  // of kVirtual
  int64_t microbatches = 1;
  int64_t active_microbatches = 0;  // cap on live microbatches; 0 = the schedule's own count
  bool forward_only = false;        // evaluation: no backward, no step

  int64_t chunks() const {  // that a stage's layers are cut in
    return kind == PipelineKind::kVirtual ? virtual_stages : kind == PipelineKind::kZbV ? 2 : 1;
  }
};

// Why there is no such schedule, with the numbers; nothing if there is one.
std::optional<std::string> schedule_refused(const ScheduleShape& shape);

// Whether the weights' gradients are actions of their own (kWeight).
constexpr bool puts_weights_off(PipelineKind kind) {
  return kind == PipelineKind::kZbH1 || kind == PipelineKind::kZbV;
}

// Chunks follow each other through the model: that at position 0 has the embedding, the last one
// the head. Round and round the stages, but with kZbV down the stages and back up.
struct ChunkPlace {
  int64_t stage = 0;
  int64_t chunk = 0;
  bool operator==(const ChunkPlace&) const = default;
};
ChunkPlace place_of_chunk(const ScheduleShape& shape, int64_t position);
int64_t position_of_chunk(const ScheduleShape& shape, const ChunkPlace& place);

// Everything a schedule depends on. Layers are model indices.
struct ScheduleParameters {
  ScheduleShape shape;
  std::vector<std::vector<std::vector<int64_t>>> layers;  // per stage and chunk, forward order
  // Of each gradient bucket, the last layers' first; layers may lie between two. Per stage; empty =
  // none.
  std::vector<std::vector<int64_t>> bucket_first_layers, bucket_last_layers;
  // Whose weight gradient is never put off, because it needs the logits' gradient; -1 = none.
  int64_t head_layer = -1;
  // By model index; empty = none. Of layers that are computed again before their backward: the
  // layer whose input is kept, the first of the run that shares it; -1 = kept whole.
  std::vector<int64_t> checkpoints;
  bool selective = false;  // of those layers a part is kept too: LayerMemory::thinned_bytes less
  std::vector<bool> offloaded;  // by model index: what its calls keep lies on the host meanwhile
  int64_t loading_horizon = 0;  // how many calls ahead of its backward it is fetched
  // A bucket is updated as soon as it is reduced: nothing has to be known of the others before.
  bool early_updates = false;
  // Each bucket's updated weights are gathered while the others are updated, and waited for where
  // the next step uses them first: a list begins with the gathers of the step before under way.
  bool sharded = false;
  // Sharded gradients: each microbatch's are reduced, and the buffer of each bucket (of one layer)
  // while they are whole. Sharded weights: gathered before each use, `prefetch_layers` ahead, in
  // their buffers. Per stage; empty = whole. (RankLayout has the sizes.)
  std::vector<std::vector<int32_t>> gradient_buffers;
  std::vector<std::vector<int32_t>> weight_buffers;
  int64_t prefetch_layers = 1;
  // Per stage, the last bucket, whose tensors all layers have and which stays gathered to the end
  // of the step; -1 = none. `table_persists`: the token embedding is among them.
  std::vector<int32_t> persistent_buckets;
  bool table_persists = false;
  bool tied_on_stage = false;       // the head uses the embedding's weight of the same stage
  bool tied_across_stages = false;  // first and last stage share the embedding
  bool kv_replicated = false;
};

// Throws ConfigError where schedule_refused().
Schedule make_schedule(const ScheduleParameters& parameters);

// Whether calls of the layer leave anything on the host: a layer within a run that shares a
// checkpoint keeps nothing.
bool is_offloaded(const ScheduleParameters& parameters, int64_t layer);
// The model index of the layer whose input it is computed again from; -1 = it is kept whole.
int64_t checkpoint_of(const ScheduleParameters& parameters, int64_t layer);

// The most that is live on `stage` at any time, by walking its actions: microbatches, or
// microbatches in a chunk where it has several.
int64_t max_live(const Schedule& schedule, int64_t stage);

// Simulates all stages with sends that need their receiver (nothing is buffered) and channels that
// keep their order, and proves: every send meets its receive, nobody waits for ever, a microbatch
// passes each layer forward and backward once and in order, data are there before they are used,
// the live bound is kept. Returns nothing when all hold, else the counter-example, for people.
std::optional<std::string> verify(const Schedule& schedule, const ScheduleParameters& parameters);

}  // namespace smp
