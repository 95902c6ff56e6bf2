#include <ATen/core/Tensor.h>
#include <doctest/doctest.h>

#include <vector>

#include "engine/microbatch.h"
#include "engine/pipeline_messages.h"
#include "ledger/tensor_factories.h"
#include "parity/layouts.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp {
namespace {

schedule::Action message(schedule::ActionKind kind, schedule::Payload payload, int32_t peer) {
  return {.kind = kind, .payload = payload, .microbatch = 0, .peer = peer};
}

}  // namespace

TEST_CASE("stages hand on several tensors of different shapes, and integers without gradients") {
  // Any model of two stages: the messages are told what they carry.
  const Plan plan =
      parity::plan_of(parity::gpt2_model(), {"", {.pipeline = 2}}, Precision::kFp32, "text.txt");
  const std::vector<model::TensorSpec> handed = {
      {{2, 3}, DType::kF32}, {{4}, DType::kI64}, {{5, 1, 2}, DType::kF64}};
  jobs::run_ranks(2, [&](comm::Communicator& world) {
    ledger::MemoryLedger ledger(world.rank(), 0);
    const ledger::LedgerScope scope(ledger);
    parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
    engine::Microbatches microbatches;
    const bool sends = world.rank() == 0;
    engine::PipelineMessages messages(
        {sends ? layout::ChunkEnds{{}, handed} : layout::ChunkEnds{handed, {}}}, model,
        microbatches);
    const auto run = [&](schedule::ActionKind start, schedule::ActionKind wait,
                         schedule::Payload payload) {
      const int32_t peer = 1 - world.rank();
      const bool receives = start == schedule::ActionKind::kReceive;
      receives ? messages.start_receive(message(start, payload, peer))
               : messages.start_send(message(start, payload, peer));
      receives ? messages.finish_receive(message(wait, payload, peer))
               : messages.finish_send(message(wait, payload, peer));
    };
    const std::vector<at::Tensor> outputs = {ledger::full_tensor({2, 3}, 1.5, at::kFloat),
                                             ledger::full_tensor({4}, 7, at::kLong),
                                             ledger::full_tensor({5, 1, 2}, -2.0, at::kDouble)};
    const std::vector<at::Tensor> gradients = {ledger::full_tensor({2, 3}, 0.25, at::kFloat),
                                               at::Tensor(),
                                               ledger::full_tensor({5, 1, 2}, 8.0, at::kDouble)};
    engine::InFlight& flight = microbatches.admit(0, 0);
    flight.calls.emplace_back();  // keeps it under way
    std::vector<at::Tensor> arrived;
    if (sends) {
      flight.hidden = outputs;
      run(schedule::ActionKind::kSend, schedule::ActionKind::kSendWait,
          schedule::Payload::kActivation);
      run(schedule::ActionKind::kReceive, schedule::ActionKind::kReceiveWait,
          schedule::Payload::kGradient);
      arrived = flight.gradients;
    } else {
      run(schedule::ActionKind::kReceive, schedule::ActionKind::kReceiveWait,
          schedule::Payload::kActivation);
      arrived = flight.hidden;
      flight.gradients = gradients;
      run(schedule::ActionKind::kSend, schedule::ActionKind::kSendWait,
          schedule::Payload::kGradient);
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
