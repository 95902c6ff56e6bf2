#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "microbatch.h"
#include "smp/comm/communicator.h"
#include "smp/plan/chunk_ends.h"
#include "smp/plan/layer_tensors.h"
#include "smp/plan/schedule.h"
#include "smp/runtime/parallelize.h"

namespace smp {

// Carries activations and gradients between neighbouring stages, and a tied weight and its gradient
// between the stages that share it, as the actions say: each message is started, and waited for
// when its data or its buffer are needed. A message is as many tensors as the layers hand on there;
// integers have no gradient, and nothing goes back for them. Used by the engine's thread.
class PipelineMessages {
 public:
  // `ends`: of this stage's chunks (chunk_ends()).
  PipelineMessages(std::vector<ChunkEnds> ends, ParallelModel& model, Microbatches& microbatches);

  void start_receive(const Action& action);
  void finish_receive(const Action& action);
  void start_send(const Action& action);
  void finish_send(const Action& action);

  bool empty() const { return receives_.empty() && sends_.empty(); }
  void abandon();  // waits, after an abort, until nothing moves any more

 private:
  struct Message {
    std::vector<at::Tensor> tensors;  // live until the message is done; undefined: not sent
    std::vector<WorkPtr> works;
  };
  using Key = std::tuple<Payload, int64_t, int64_t>;  // payload, chunk, microbatch

  static Key key_of(const Action& action) {
    return {action.payload, action.chunk, action.microbatch};
  }
  std::vector<at::Tensor> receive_buffers(const Action& action);
  Communicator& group_of(Payload payload);
  int peer_of(const Action& action) const;  // its rank in that group

  const std::vector<ChunkEnds> ends_;
  ParallelModel& model_;
  Microbatches& microbatches_;
  std::map<Key, Message> receives_, sends_;
};

}  // namespace smp
