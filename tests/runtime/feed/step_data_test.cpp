#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <vector>

#include "parity/layouts.h"
#include "plan/data/corpus.h"
#include "runtime/short_runs.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/data/token_data.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/runtime/training/trainer.h"

namespace smp {
namespace {

int64_t predicted_data(const Plan& plan, int64_t rank) {
  const mesh::Coord coord =
      mesh::Mesh(plan.degrees, plan.job.parallel.placement_strategy).coord_of(rank);
  int64_t bytes = 0;
  for (const MemoryTerm& term : memory::predict_memory(plan, coord.pipeline, coord.tensor).terms) {
    if (term.category == MemoryCategory::kData) bytes += term.bytes;
  }
  return bytes;
}

}  // namespace

TEST_CASE("the batch that is read ahead is counted to the byte, as the plan predicts it") {
  const test::ShortRuns runs;
  const auto check_plan = [&](const std::string& name, const Plan& plan) {
    INFO(name);
    training::TrainOptions options;
    options.steps = 3;
    const training::RunResult result = test::ShortRuns::run(plan, options);
    for (const record::RankMeasurements& rank : result.ranks) {
      INFO("rank " << rank.rank);
      CHECK(rank.peak.by_category[static_cast<size_t>(MemoryCategory::kData)] ==
            predicted_data(plan, rank.rank));
    }
  };
  parity::LayoutCase zb_v{"", {.pipeline = 2}};
  zb_v.pipeline = PipelineKind::kZbV;
  zb_v.virtual_stages = 2;
  for (const Packing pack : {Packing::kConcatenate, Packing::kDocuments}) {
    const std::string packed = pack == Packing::kDocuments ? ", documents packed" : "";
    const auto with_pack = [&](const parity::LayoutCase& layout) {
      Plan plan = runs.plan(layout);
      plan.job.training.data_pack = pack;
      return plan;
    };
    check_plan("one rank" + packed, with_pack({"", {}}));
    check_plan("d2" + packed, with_pack({"", {.replica = 2}}));
    check_plan("p3" + packed, with_pack({"", {.pipeline = 3}}));
    check_plan("p2 zb_v" + packed, with_pack(zb_v));
  }
  check_plan("images", runs.plan({"", {}}, Precision::kFp64, parity::image_model()));
}

TEST_CASE("data that are found bad ahead of time end the run at the step that wants them") {
  const ScratchFolder folder;
  constexpr int64_t kLength = 32, kWindows = 120, kBadWindow = 77;
  corpus::Tokens tokens(static_cast<size_t>(kLength * kWindows + 1), 5);
  tokens[kLength * kBadWindow + 3] = 60000;
  corpus::write_bytes(folder / "a.npy",
                      corpus::npy("<u2", "(" + std::to_string(tokens.size()) + ",)",
                                  corpus::raw<uint16_t>(tokens)));
  const Plan plan =
      parity::plan_of(parity::gpt2_model(), {"", {}}, Precision::kFp64, folder / "a.npy");
  const TrainingSpec& training = plan.job.training;
  int64_t step = 0, sample = 0;
  {
    const data::TokenData data(plan.job);
    while (data.place(step, sample).sample != kBadWindow) {
      if (++sample < *training.global_batch) continue;
      sample = 0;
      ++step;
    }
  }
  std::string failed_in, text;
  int64_t done = 0;
  jobs::run_ranks(1, [&](comm::Communicator& world) {
    training::TrainOptions options;
    options.threads = 1;
    options.failed_in = &failed_in;
    options.on_step = [&](const record::StepMetrics& metrics) { done = metrics.step; };
    try {
      training::train(plan, world, options);
    } catch (const std::exception& error) {
      text = error.what();
    }
  });
  CHECK(done == step);  // all steps before it
  CHECK(failed_in == "step " + std::to_string(step + 1) + ": forward, microbatch " +
                         std::to_string(sample / *training.micro_batch) + ", layer 0");
  CHECK(text.find("a.npy, token " + std::to_string(kLength * kBadWindow + 3) + " is 60000") !=
        std::string::npos);
}

}  // namespace smp
