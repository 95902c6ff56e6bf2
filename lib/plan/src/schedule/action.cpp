#include "smp/plan/schedule/action.h"

#include <sstream>

#include "smp/plan/base/check.h"

namespace smp::schedule {

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kReceive: return "receive";
    case ActionKind::kReceiveWait: return "receive_wait";
    case ActionKind::kSend: return "send";
    case ActionKind::kSendWait: return "send_wait";
    case ActionKind::kForward: return "forward";
    case ActionKind::kBackward: return "backward";
    case ActionKind::kWeight: return "weight";
    case ActionKind::kRecompute: return "recompute";
    case ActionKind::kOffload: return "offload";
    case ActionKind::kFetch: return "fetch";
    case ActionKind::kRouterLoads: return "router_loads";
    case ActionKind::kReduceKv: return "reduce_kv";
    case ActionKind::kReduce: return "reduce";
    case ActionKind::kReduceWait: return "reduce_wait";
    case ActionKind::kReduceReplicas: return "reduce_replicas";
    case ActionKind::kReduceReplicasWait: return "reduce_replicas_wait";
    case ActionKind::kGradientNorm: return "gradient_norm";
    case ActionKind::kStep: return "step";
    case ActionKind::kUpdate: return "update";
    case ActionKind::kGather: return "gather";
    case ActionKind::kGatherWait: return "gather_wait";
    case ActionKind::kFree: return "free";
  }
  check_failed(__FILE__, __LINE__, "unknown action");
}

std::string_view name_of(Payload payload) {
  switch (payload) {
    case Payload::kNone: return "none";
    case Payload::kActivation: return "activation";
    case Payload::kGradient: return "gradient";
    case Payload::kTiedGradient: return "tied_gradient";
    case Payload::kTiedWeight: return "tied_weight";
  }
  check_failed(__FILE__, __LINE__, "unknown payload");
}

std::string to_string(const Action& action) {
  std::ostringstream text;
  text << name_of(action.kind);
  if (action.payload != Payload::kNone) text << ' ' << name_of(action.payload);
  if (action.microbatch >= 0) text << " microbatch " << action.microbatch;
  if (action.chunk > 0) text << " chunk " << action.chunk;
  if (action.layer >= 0) text << " layer " << action.layer;
  if (action.bucket >= 0) text << " bucket " << action.bucket;
  if (action.peer >= 0) {
    const bool sends = action.kind == ActionKind::kSend || action.kind == ActionKind::kSendWait;
    text << (sends ? " to stage " : " from stage ") << action.peer;
  }
  return text.str();
}

}  // namespace smp::schedule
