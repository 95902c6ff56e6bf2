#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/tensorfiles/safetensors/tensor_piece.h"

// All that a run needs to go on as if it had never stopped, as pieces in memory. Weights have their
// parameter's name, the optimizer's state "optimizer.<state>.<parameter>", counters
// "trainer.<what>" and "optimizer.steps". Weights and dropout are drawn, and samples chosen, by
// generators without a state: their keys are the seed and the step, so these two are the
// generators' state and the place in the data. A GPU's tensors are pieces of their copies. The
// model and the copies must outlive the pieces.
namespace smp::gpu {
class HostCopies;
}
namespace smp::parallel {
struct ParallelModel;
}

namespace smp::training {

// The lowest evaluation loss so far, as bits; checkpoints of runs that evaluate have it.
inline constexpr const char* kBestLoss = "evaluation.best_loss_bits";

struct TrainingCounters {
  int64_t step = 0;             // steps done
  int64_t samples = 0;          // read so far
  int64_t seed = 0;             // the bits of training.seed: key of weights and of the data order
  int64_t data_bytes = 0;       // of the text, in which sample starts are drawn
  int64_t optimizer_steps = 0;  // updates, for Adam's bias corrections
  // fp16 alone: LossScale::State, its value as bits.
  bool has_loss_scale = false;
  int64_t loss_scale_bits = 0, good_steps = 0, overflows_left = 0, skipped_steps = 0;
  // Of a run that evaluates: BestSoFar::State, its losses as bits.
  bool has_best = false;
  int64_t best_loss_bits = 0, best_step = 0, counted_loss_bits = 0, without_improvement = 0;
};

// What this rank writes: every element of the state on one rank, the ranks that hold the same ones
// sharing the writing.
std::vector<safetensors::TensorPiece> pieces_to_save(const Plan& plan,
                                                     parallel::ParallelModel& model,
                                                     TrainingCounters& counters,
                                                     gpu::HostCopies& copies);

// What it holds and has to load: the copies of other ranks' elements too.
std::vector<safetensors::TensorPiece> pieces_to_load(parallel::ParallelModel& model,
                                                     TrainingCounters& counters,
                                                     gpu::HostCopies& copies);

// Of these the weights alone, the tied copy included.
std::vector<safetensors::TensorPiece> weights_to_load(const parallel::ParallelModel& model,
                                                      gpu::HostCopies& copies);

// Names of all tensors of a state of this model, whichever rank holds them.
std::vector<std::string> names_of_state(const Plan& plan, const parallel::ParallelModel& model);

}  // namespace smp::training
