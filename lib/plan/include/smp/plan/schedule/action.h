#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace smp::schedule {

// An Action is one thing that a rank does in a training step: compute a layer for a microbatch,
// start a message or a collective, or wait for one. A Schedule (schedule.h) lists each stage's
// actions in order. Plain data; safe from any thread.
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
  kRouterLoads,  // after all forwards: all ranks sum how many tokens chose each expert
  kReduceKv,     // sum the gradients of replicated KV heads of `layer` over the tensor ranks
  kReduce,       // start reducing gradient bucket `bucket` over the data-parallel ranks
  kReduceWait,
  kReduceReplicas,  // with replicas of the shards: start summing this rank's part of `bucket` there
  kReduceReplicasWait,
  kGradientNorm,  // the reduced gradients of `bucket` are squared and summed, for the norm
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

}  // namespace smp::schedule
