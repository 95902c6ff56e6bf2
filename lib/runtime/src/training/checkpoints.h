#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "smp/plan/runinfo/training_record.h"
#include "smp/plan/spec/plan.h"
#include "smp/tensorfiles/checkpoint/checkpoint_store.h"
#include "smp/tensorfiles/checkpoint/checkpoint_writer.h"
#include "training/best_so_far.h"
#include "training/training_state.h"

// When a run saves its state and how it goes on from one: the trainer's side of checkpoints. After
// each step the ranks agree, in one small collective, whether all have written the save under way
// (then rank 0 makes it whole), whether somebody asked to end, and whether it is time to save. Used
// by the rank's own thread; the model must outlive it.
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
  // Collective: the ranks agree on where they go on from.
  Checkpoints(const Plan& plan, const TrainOptions& options, parallel::ParallelModel& model,
              const feed::DataSource& data);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Brings the model to where this run starts: the checkpoint that options.resume names, or the
  // weights of training.init_from, or the drawn ones that it has. Returns how many steps are done.
  // Throws CheckpointError for a damaged checkpoint, ConfigError for one of another training and
  // for weights of another model. Changes nothing in the run's folder.
  int64_t start();

  // Once all ranks have started: rank 0 removes from the run's folder what an interrupted save has
  // left, and what was measured in steps that come again.
  void begin();

  // What evaluations came to: restored by start(), saved with the rest.
  BestSoFar& best() { return best_; }

  // After step `done` of `steps`, on every rank; `is_best`: it was evaluated, and its loss is the
  // lowest so far. Where best().is_exhausted() it is the last one. True: a checkpoint was asked
  // for, it is whole, and training ends here. Throws what a save in the background failed with.
  bool after_step(int64_t done, int64_t steps, bool is_best);

  // After the last step: the save under way is whole when it returns, on every rank.
  void finish();

 private:
  struct Start {
    std::string id;          // of this start of the run
    std::string checkpoint;  // to go on from; empty: none
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
  std::unique_ptr<gpu::HostCopies> copies_;  // of what is saved
  Start start_;
  checkpoint::CheckpointStore store_;
  runinfo::TrainingRecord training_;
  TrainingCounters counters_;
  BestSoFar best_;
  std::string kept_best_;  // on rank 0: what `best` is to name; "" = nothing
  std::unique_ptr<checkpoint::CheckpointWriter>
      writer_;           // from the first save on, or from the start
  int64_t pending_ = 0;  // the step whose save is not known to be written by all ranks; 0 = none
  bool pending_is_best_ = false;
  std::chrono::steady_clock::time_point last_save_;
};

}  // namespace smp::training
