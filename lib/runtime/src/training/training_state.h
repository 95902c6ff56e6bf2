#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/tensorfiles/safetensors/tensor_piece.h"

// The complete training state, as pieces in memory: a run that resumes from it continues as if it
// had not stopped. Weights have their parameter's name, optimizer state has
// "optimizer.<state>.<parameter>", counters have "trainer.<what>" and "optimizer.steps". Random
// numbers (weights, dropout, samples) are functions of seed and step, so these two are the state of
// the generators and the position in the data. Pieces of GPU tensors refer to their host copies.
// The model and the copies must outlive the pieces.
namespace smp::gpu {
class HostCopies;
}
namespace smp::parallel {
struct ParallelModel;
}

namespace smp::training {

// The lowest evaluation loss so far, as bits. Checkpoints of runs that evaluate have it.
inline constexpr const char* kBestLoss = "evaluation.best_loss_bits";

struct TrainingCounters {
  int64_t step = 0;             // steps done
  int64_t samples = 0;          // read so far
  int64_t seed = 0;             // the bits of training.seed: key of weights and of the data order
  int64_t data_bytes = 0;       // size of the training data, from which samples are drawn
  int64_t optimizer_steps = 0;  // updates, for Adam's bias corrections
  // fp16 only: LossScale::State, its value as bits.
  bool has_loss_scale = false;
  int64_t loss_scale_bits = 0, good_steps = 0, overflows_left = 0, skipped_steps = 0;
  // In runs that evaluate: BestEvaluation::State, its losses as bits.
  bool has_best = false;
  int64_t best_loss_bits = 0, best_step = 0, counted_loss_bits = 0, without_improvement = 0;
};

// The pieces that this rank writes. Each element of the state is written by one rank; ranks with
// equal elements share the writing.
std::vector<safetensors::TensorPiece> pieces_to_save(parallel::ParallelModel& model,
                                                     TrainingCounters& counters,
                                                     gpu::HostCopies& copies);

// The pieces that this rank loads: all its elements, also those that another rank writes.
std::vector<safetensors::TensorPiece> pieces_to_load(parallel::ParallelModel& model,
                                                     TrainingCounters& counters,
                                                     gpu::HostCopies& copies);

// The weights among these, with the tied copy.
std::vector<safetensors::TensorPiece> weights_to_load(const parallel::ParallelModel& model,
                                                      gpu::HostCopies& copies);

// Names of all tensors of this model's state, on any rank.
std::vector<std::string> names_of_state(const Plan& plan, const parallel::ParallelModel& model);

}  // namespace smp::training
