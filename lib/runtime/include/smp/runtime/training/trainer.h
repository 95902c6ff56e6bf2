#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/comm/device/gdr_memory.h"
#include "smp/plan/runinfo/progress_page.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/gpu/gpu_door.h"
#include "smp/runtime/ledger/memory_report.h"
#include "smp/runtime/record/metrics.h"
#include "smp/runtime/record/run_report.h"
#include "smp/runtime/training/fault.h"

namespace smp::training {

// How one rank trains a plan, beside what the plan says.
struct TrainOptions {
  // Rank 0 writes metrics.jsonl, report.json and weights/, all ranks checkpoints/; "" = none.
  std::string run_dir;
  bool resume = false;  // go on from a checkpoint in run_dir, the one that `latest` names
  std::optional<int64_t> resume_step;   // or that of this step
  std::function<bool()> end_requested;  // true: save a checkpoint after this step, then end
  bool save_weights = true;             // into run_dir, at the end
  std::FILE* progress = nullptr;        // rank 0's step line
  int progress_columns = 0;             // of the terminal that shows it; 0 = it is none
  std::optional<int64_t> steps;         // instead of the plan's
  std::string host;                     // of this rank, as the user named it; "" = there is one
  int threads = 0;                      // of torch, in this rank; 0 = torch's own choice
  int ranks_of_host = 0;                // that share its memory; 0 = the plan's number
  // The process is this one rank: torch's own threads count for it as well.
  bool owns_process = false;
  gpu::OpenGpu open_gpu = gpu::gpus_of_module("");  // for plans whose cluster.device is cuda
  device::GdrUse gdr_use = device::GdrUse::kAuto;   // of the smallest copies to and from a GPU
  // That of `world`: GPUs that do not end a call which all ranks have made are given up after it.
  std::chrono::milliseconds comm_timeout{300000};
  runinfo::ProgressPost* progress_post =
      nullptr;                                  // where the rank says how far it is; none: nowhere
  ledger::MemoryWatch* memory_watch = nullptr;  // is shown the rank's memory while it trains
  std::optional<Fault> fault;
  std::function<void()> on_ready;  // on rank 0, when all ranks are set up: the run goes on
  std::function<void(const record::StepMetrics&)> on_step;  // on every rank, after each step
  // Set when training fails: where the rank was, e.g. "step 7: backward, microbatch 2, layer 3".
  std::string* failed_in = nullptr;
};

// What a run came to; the same on every rank but for `mine`.
struct RunResult {
  int64_t first_step = 0;          // steps done before, when resumed
  bool ended_on_request = false;   // after a checkpoint, before the last step
  std::vector<double> losses;      // of each step
  std::vector<double> grad_norms;  // before clipping
  std::vector<double> step_s;
  record::RunFacts run;
  record::RankFacts mine;
  std::vector<record::RankFacts> ranks;  // in rank order
};

// Trains the plan as rank world.rank(). Collective over `world`. The rank's memory is limited to
// the plan's cluster.memory_per_process_bytes. Throws ConfigError for a plan that the engine cannot
// run (engine_rules.h) and what Engine::step throws; before an exception leaves, the peers are
// told.
RunResult train(const Plan& plan, comm::Communicator& world, const TrainOptions& options);

}  // namespace smp::training
