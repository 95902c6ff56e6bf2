#include "cost/activation_walk.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "plan/schedule_samples.h"

using namespace smp;
using namespace smp::cost;
using namespace smp::schedule;

namespace {

// Stage `at` of a model whose blocks keep 50 bytes, in chunks of two layers or more; messages and
// all gradients between layers have 10.
WalkedStage walked_stage(const ScheduleParameters& parameters, int64_t at) {
  const ScheduleShape& shape = parameters.shape;
  const int64_t positions = shape.stages * shape.chunks();
  WalkedStage stage;
  stage.defers_weight_gradients = defers_weight_gradients(shape.kind);
  for (int64_t position = 0; position < positions; ++position) {
    const ChunkPlace place = place_of_chunk(shape, position);
    const auto is_here = [&](int64_t other) {
      return other >= 0 && other < positions && place_of_chunk(shape, other).stage == at;
    };
    const auto& chunks = parameters.layers[static_cast<size_t>(place.stage)];
    const std::vector<int64_t>& layers = chunks[static_cast<size_t>(place.chunk)];
    stage.chunks.resize(static_cast<size_t>(shape.chunks()));
    if (place.stage == at) {
      stage.chunks[static_cast<size_t>(place.chunk)] = {layers.front(), layers.back()};
    }
    for (const int64_t layer : layers) {
      WalkedLayer walked;
      const bool head = layer == parameters.head_layer;
      walked.kind = layer == 0 ? RunningLayer::kEmbedding
                    : head     ? RunningLayer::kHead
                               : RunningLayer::kBlock;
      walked.memory = {.output_bytes = head ? 1 : 10,
                       .saved_bytes = 50,
                       .forward_peak_bytes = 60,
                       .input_gradient_bytes = layer == 0 ? 0 : 10,
                       .backward_peak_bytes = 20,
                       .deferred_bytes = walked.kind == RunningLayer::kBlock ? 45 : 0,
                       .deferred_backward_peak_bytes = 15,
                       .weight_peak_bytes = 5};
      if (layer == 0) walked.memory.saved_bytes = 10;
      walked.handed_bytes = walked.handed_gradient_bytes = head ? 0 : 10;
      walked.opens_chunk = layer == layers.front();
      walked.closes_chunk = layer == layers.back();
      walked.takes_over = walked.opens_chunk && is_here(position - 1);
      walked.hands_over = walked.closes_chunk && is_here(position + 1);
      stage.layers.push_back(walked);
    }
  }
  return stage;
}

}  // namespace

TEST_CASE("a walk of any schedule ends with nothing held, and never holds less than nothing") {
  for (const PipelineKind kind : {PipelineKind::kSimple, PipelineKind::kInterleaved,
                                  PipelineKind::kVirtual, PipelineKind::kZbH1, PipelineKind::kZbV})
    for (const auto& pipeline :
         {std::pair{1, false}, {2, false}, {3, false}, {5, false}, {1, true}, {2, true}, {5, true}})
      for (const int64_t microbatches : {1, 5, 10, 30}) {
        const int stages = pipeline.first;
        const bool in_engine = pipeline.second;
        const ScheduleParameters parameters =
            sample_parameters({.stages = stages,
                               .microbatches = microbatches,
                               .kind = kind,
                               .virtual_stages = kind == PipelineKind::kVirtual ? 3 : 1});
        if (schedule_refused(parameters.shape)) continue;
        const Schedule schedule = make_schedule(parameters);
        for (int64_t at = 0; at < stages; ++at) {
          WalkedStage stage = walked_stage(parameters, at);
          stage.in_engine = in_engine;
          const ActivationPeaks peaks =
              walk_activations(schedule.actions[static_cast<size_t>(at)], stage);
          CAPTURE(static_cast<int>(kind));
          CAPTURE(stages);
          CAPTURE(in_engine);
          CAPTURE(at);
          CHECK(peaks.step.total() == 0);
          CHECK(peaks.step.messages == 0);
          CHECK(peaks.step.gradients == 0);
          CHECK(peaks.step.live == 0);
          for (const ActivationBytes& peak : {peaks.forward, peaks.backward}) {
            CHECK(peak.messages >= 0);
            CHECK(peak.gradients >= 0);
            CHECK(peak.live <= max_live(schedule, at));
          }
        }
      }
}
