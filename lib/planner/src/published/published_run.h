#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "published/run_cells.h"
#include "smp/plan/framework/framework.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

// A row of a table of published runs, as a job: docs/scoring.md documents the columns, and what is
// taken where a cell is empty. No function here reads a measured column (peak_mem_gb, step_time_s,
// tokens_per_s_per_gpu, tflops_per_gpu, fits) but measurement_of(). Pure; any thread.
namespace smp::published {

// Which bytes a table calls peak memory.
enum class MemoryFigure {
  kDevice,              // all that the device lacks, as nvidia-smi shows
  kReserved,            // what PyTorch's allocator took, of the fullest rank
  kAllocated,           // what it handed out, of the fullest rank
  kReservedFirstStage,  // what PyTorch's allocator took, of a rank of the first stage
  kAllocatedLastStage,  // the same of a rank of the last stage
  kStatesFirstStage,    // parameters, gradients, optimizer and activations of the first stage
  kNone,                // a figure that no prediction of bytes can be compared with
};

struct PublishedRun {
  JobSpec job;
  choice::LayoutChoice choice;
  MemoryFigure figure = MemoryFigure::kDevice;
  bool layout_is_published = true;     // else the fastest that fits is priced
  bool sharding_is_published = true;   // else the optimizer's, if the run does not fit without
  bool recompute_is_published = true;  // else the least that fits
  bool left_out = false;               // of the statistics: the table itself doubts the row
};

// The named clusters, each read once.
class KnownClusters {
 public:
  const ClusterSpec& named(const std::string& name);

 private:
  std::map<std::string, ClusterSpec> specs_;
};

// What the run says; only meaningful when cells.problems is empty afterwards.
PublishedRun published_run(RunCells& cells, KnownClusters& clusters,
                           const FrameworkChoice& framework);

// The measured columns, in the units of predictions. A step time comes from step_time_s, else from
// tokens_per_s_per_gpu, else from tflops_per_gpu and its convention; `model_flops` are those of a
// step over all accelerators, recomputation not counted.
struct Measurement {
  std::optional<double> peak_gib;
  std::optional<double> step_s;
  std::optional<bool> fits;
};
Measurement measurement_of(RunCells& cells, const PublishedRun& run, double model_flops);

// Parts of published_run(). Each says in cells what it could not read and what it assumed.
void read_fine_tuning(RunCells& cells, PublishedRun& run);
const char* framework_of_run(const RunCells& cells);  // of a shipped file, or unknown
ModelSpec model_of_run(RunCells& cells, const framework::UsualSettings& usual, int64_t stages);
// Of a GPT of which `params_b` alone is published: its layers, width and heads.
void size_gpt(RunCells& cells, ModelSpec& model, int64_t stages);
// Of a model whose other sizes are known; what the notes leave out stays as it is.
void read_experts(RunCells& cells, ModelSpec& model);
void read_latent_attention(RunCells& cells, ModelSpec& model);
void read_layer_pattern(RunCells& cells, ModelSpec& model);
ClusterSpec cluster_of_run(RunCells& cells, KnownClusters& clusters, int64_t world);
// Sharding, batch, recomputation, offloading and stages; `data` is the data-parallel degree.
void read_layout(RunCells& cells, PublishedRun& run, int64_t data);
MemoryFigure figure_of(const RunCells& cells);

}  // namespace smp::published
