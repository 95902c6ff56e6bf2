#include <ATen/core/Tensor.h>
#include <doctest/doctest.h>

#include <vector>

#include "microbatch.h"
#include "new_tensors.h"
#include "parity/layouts.h"
#include "pipeline_messages.h"
#include "smp/comm/thread_group.h"
#include "smp/plan/chunk_ends.h"
#include "smp/runtime/memory_ledger.h"
#include "smp/runtime/parallelize.h"

namespace smp {
namespace {

Action message(ActionKind kind, Payload payload, int32_t peer) {
  return {.kind = kind, .payload = payload, .microbatch = 0, .peer = peer};
}

}  // namespace

TEST_CASE("stages hand on several tensors of different shapes, and integers without gradients") {
  // Any model of two stages: the messages are told what they carry.
  const Plan plan =
      parity::plan_of(parity::gpt2_model(), {"", {.pipeline = 2}}, Precision::kFp32, "text.txt");
  const std::vector<TensorSpec> handed = {
      {{2, 3}, DType::kF32}, {{4}, DType::kI64}, {{5, 1, 2}, DType::kF64}};
  run_ranks(2, [&](Communicator& world) {
    MemoryLedger ledger(world.rank(), 0);
    const LedgerScope scope(ledger);
    ParallelModel model = apply_parallelism(plan, world, ledger);
    Microbatches microbatches;
    const bool sends = world.rank() == 0;
    PipelineMessages messages({sends ? ChunkEnds{{}, handed} : ChunkEnds{handed, {}}}, model,
                              microbatches);
    const auto run = [&](ActionKind start, ActionKind wait, Payload payload) {
      const int32_t peer = 1 - world.rank();
      const bool receives = start == ActionKind::kReceive;
      receives ? messages.start_receive(message(start, payload, peer))
               : messages.start_send(message(start, payload, peer));
      receives ? messages.finish_receive(message(wait, payload, peer))
               : messages.finish_send(message(wait, payload, peer));
    };
    const std::vector<at::Tensor> outputs = {full_tensor({2, 3}, 1.5, at::kFloat),
                                             full_tensor({4}, 7, at::kLong),
                                             full_tensor({5, 1, 2}, -2.0, at::kDouble)};
    const std::vector<at::Tensor> gradients = {full_tensor({2, 3}, 0.25, at::kFloat), at::Tensor(),
                                               full_tensor({5, 1, 2}, 8.0, at::kDouble)};
    InFlight& flight = microbatches.admit(0, 0);
    flight.calls.emplace_back();  // keeps it under way
    std::vector<at::Tensor> arrived;
    if (sends) {
      flight.hidden = outputs;
      run(ActionKind::kSend, ActionKind::kSendWait, Payload::kActivation);
      run(ActionKind::kReceive, ActionKind::kReceiveWait, Payload::kGradient);
      arrived = flight.gradients;
    } else {
      run(ActionKind::kReceive, ActionKind::kReceiveWait, Payload::kActivation);
      arrived = flight.hidden;
      flight.gradients = gradients;
      run(ActionKind::kSend, ActionKind::kSendWait, Payload::kGradient);
    }
    CHECK(messages.empty());
    const std::vector<at::Tensor>& expected = sends ? gradients : outputs;
    REQUIRE(arrived.size() == expected.size());
    for (size_t i = 0; i < arrived.size(); ++i) {
      REQUIRE(arrived[i].defined() == expected[i].defined());
      if (arrived[i].defined()) CHECK(arrived[i].equal(expected[i]));
    }
  });
}

}  // namespace smp
