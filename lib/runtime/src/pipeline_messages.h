#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "microbatch.h"
#include "smp/comm/communicator.h"
#include "smp/plan/schedule.h"
#include "smp/runtime/parallelize.h"

namespace smp {

// Carries activations and gradients between neighbouring stages, and a tied weight and its gradient
// between the stages that share it, as the actions say: each message is started, and waited for
// when its data or its buffer are needed. Used by the engine's thread.
class PipelineMessages {
 public:
  PipelineMessages(const Plan& plan, ParallelModel& model, Microbatches& microbatches);

  void start_receive(const Action& action);
  void finish_receive(const Action& action);
  void start_send(const Action& action);
  void finish_send(const Action& action);

  bool empty() const { return receives_.empty() && sends_.empty(); }
  void abandon();  // waits, after an abort, until nothing moves any more

 private:
  struct Message {
    at::Tensor tensor;  // lives until the message is done
    WorkPtr work;
  };
  using Key = std::tuple<Payload, int64_t, int64_t>;  // payload, chunk, microbatch

  static Key key_of(const Action& action) {
    return {action.payload, action.chunk, action.microbatch};
  }
  Communicator& group_of(Payload payload);
  int peer_of(const Action& action) const;  // its rank in that group

  const Plan& plan_;
  ParallelModel& model_;
  Microbatches& microbatches_;
  std::map<Key, Message> receives_, sends_;
};

}  // namespace smp
