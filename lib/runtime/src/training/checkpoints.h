#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "smp/plan/runinfo/training_record.h"
#include "smp/plan/spec/plan.h"
#include "smp/tensorfiles/checkpoint/checkpoint_store.h"
#include "smp/tensorfiles/checkpoint/checkpoint_writer.h"
#include "training/best_evaluation.h"
#include "training/training_state.h"

// The trainer's side of checkpoints: when a run saves its state, and how it resumes. After each
// step the ranks agree, in one small collective, on three questions. Have all ranks written the
// save in progress (then rank 0 commits it)? Was an end requested? Is it time to save? Used by the
// rank's own thread; the model must outlive it.
namespace smp::comm {
class Communicator;
}
namespace smp::feed {
class DataSource;
}
namespace smp::gpu {
class HostCopies;
}
namespace smp::parallel {
struct ParallelModel;
}

namespace smp::training {

struct TrainOptions;

class Checkpoints {
 public:
  // Collective: the ranks agree on the checkpoint from which they resume.
  Checkpoints(const Plan& plan, const TrainOptions& options, parallel::ParallelModel& model,
              const feed::DataSource& data);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Loads the initial state: the checkpoint that options.resume names, or the weights of
  // training.init_from; otherwise the model keeps its drawn weights. Returns the number of steps
  // done. Throws CheckpointError for a damaged checkpoint, and ConfigError for a checkpoint of
  // another training or weights of another model. Changes nothing in the run's folder.
  int64_t start();

  // To be called once all ranks have started. Rank 0 removes from the run's folder the files of an
  // interrupted save, and the metrics of steps that will run again.
  void begin();

  // The best evaluation: restored by start(), saved with the rest.
  BestEvaluation& best() { return best_; }

  // To be called after step `done` of `steps`, on every rank. `is_best`: its evaluation has the
  // lowest loss so far. The step is the last one if best().is_exhausted(). Returns true if an end
  // was requested and its checkpoint is committed: training ends here. Throws the error of a failed
  // save in the background.
  bool after_step(int64_t done, int64_t steps, bool is_best);

  // To be called after the last step. The save in progress is committed on every rank when it
  // returns.
  void finish();

 private:
  struct Start {
    std::string id;          // of this start of the run
    std::string checkpoint;  // to resume from; empty: none
  };
  static Start agree(const TrainOptions& options, comm::Communicator& world);

  int64_t resume();
  void load(const std::string& name);
  void find_best();
  std::string checkpoint_of_best() const;
  void save(int64_t done, bool is_best);
  void commit();
  bool is_time() const;

  const Plan& plan_;
  const TrainOptions& options_;
  parallel::ParallelModel& model_;
  std::unique_ptr<gpu::HostCopies> copies_;  // of the saved tensors
  Start start_;
  checkpoint::CheckpointStore store_;
  runinfo::TrainingRecord training_;
  TrainingCounters counters_;
  BestEvaluation best_;
  std::string kept_best_;  // on rank 0: the checkpoint that `best` shall name; "" = none
  std::unique_ptr<checkpoint::CheckpointWriter> writer_;  // null before the first save, if no
                                                          // regular saves are configured
  int64_t pending_ = 0;  // the step of the save in progress; 0 = none
  bool pending_is_best_ = false;
  std::chrono::steady_clock::time_point last_save_;
};

}  // namespace smp::training
