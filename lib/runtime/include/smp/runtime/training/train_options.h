#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "smp/comm/device/gdr_memory.h"
#include "smp/plan/runinfo/progress_page.h"
#include "smp/runtime/gpu/gpu_loader.h"
#include "smp/runtime/kernels/product_libraries.h"
#include "smp/runtime/ledger/memory_report.h"
#include "smp/runtime/record/metrics.h"
#include "smp/runtime/training/fault_injection.h"

namespace smp::training {

// Options of one rank's training that are not in the plan.
struct TrainOptions {
  // Rank 0 writes metrics.jsonl, report.json and weights/, all ranks write checkpoints/.
  // "" = nothing is written.
  std::string run_dir;
  bool resume = false;  // start from a checkpoint in run_dir: the one that `latest` names
  std::optional<int64_t> resume_step;   // or the one of this step
  std::function<bool()> end_requested;  // true: save a checkpoint after this step, then end
  bool save_weights = true;             // into run_dir, at the end
  std::FILE* progress = nullptr;        // rank 0's step line
  int progress_columns = 0;      // width of the terminal that shows the line; 0 = no terminal
  std::optional<int64_t> steps;  // instead of the plan's
  std::string host;              // this rank's host, as the user named it; "" = a single host
  int threads = 0;               // torch's threads in this rank; 0 = torch's default
  int ranks_of_host = 0;         // ranks that share the host's memory; 0 = the plan's number
  // The library of all fp32 products on CPUs, the same on every rank. Otherwise rank 0 asks
  // torch_speeds which library is faster; null: oneDNN for all.
  std::optional<kernels::ProductLibrary> products;
  kernels::TorchSpeeds torch_speeds;
  // The process runs this rank only, so memory of torch's own threads is counted for the rank too.
  bool owns_process = false;
  gpu::GpuLoader open_gpu = gpu::cuda_module_loader("");  // for plans whose cluster.device is cuda
  device::GdrUse gdr_use = device::GdrUse::kAuto;  // of the smallest copies to and from a GPU
  // The timeout of `world`. A call between GPUs that all ranks have made fails if it takes longer.
  std::chrono::milliseconds comm_timeout{300000};
  runinfo::ProgressPost* progress_post =
      nullptr;                                  // receives the rank's progress; null: nobody looks
  ledger::MemoryWatch* memory_watch = nullptr;  // can report the rank's memory while it trains
  std::optional<InjectedFault> fault;
  std::function<void()> on_ready;  // called on rank 0 when all ranks are set up
  std::function<void(const record::StepMetrics&)> on_step;  // on every rank, after each step
  // Set when training fails: the rank's phase, e.g. "step 7: backward, microbatch 2, layer 3".
  std::string* failed_in = nullptr;
};

}  // namespace smp::training
