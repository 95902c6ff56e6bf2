#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/microbatch.h"
#include "smp/comm/communicator.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp::engine {

// Sends and receives activations and gradients between neighbouring stages, and a tied weight and
// its gradient between the two stages that share it. One action starts a message, a later one waits
// for it, when its data or its buffer is needed. A message has one tensor for each one that the
// layers pass on at that point. Integer tensors have no gradient, so nothing is sent back for them.
// Used by the engine's thread.
class PipelineMessages {
 public:
  // `ends`: the inputs and outputs of this stage's chunks (chunk_ends()).
  PipelineMessages(std::vector<layout::ChunkEnds> ends, parallel::ParallelModel& model,
                   Microbatches& microbatches);

  void start_receive(const schedule::Action& action);
  void finish_receive(const schedule::Action& action);
  void start_send(const schedule::Action& action);
  void finish_send(const schedule::Action& action);

  bool empty() const { return receives_.empty() && sends_.empty(); }
  void abandon();  // after an abort: waits until no buffer is used any more

 private:
  struct Message {
    std::vector<at::Tensor> tensors;  // live until the message is done; undefined: not sent
    std::vector<comm::WorkPtr> works;
  };
  using Key = std::tuple<schedule::Payload, int64_t, int64_t>;  // payload, chunk, microbatch

  static Key key_of(const schedule::Action& action) {
    return {action.payload, action.chunk, action.microbatch};
  }
  std::vector<at::Tensor> receive_buffers(const schedule::Action& action);
  comm::Communicator& group_of(schedule::Payload payload);
  int peer_of(const schedule::Action& action) const;  // its rank in that group

  const std::vector<layout::ChunkEnds> ends_;
  parallel::ParallelModel& model_;
  Microbatches& microbatches_;
  std::map<Key, Message> receives_, sends_;
};

}  // namespace smp::engine
