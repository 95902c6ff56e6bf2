#include "training/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <set>

#include "feed/data_source.h"
#include "gpu/host_copies.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/random_hex.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/runtime/parallel/parallelize.h"
#include "smp/runtime/record/metrics.h"
#include "smp/runtime/training/train_options.h"
#include "smp/tensorfiles/checkpoint/checkpoint_reader.h"
#include "smp/tensorfiles/pretrained/huggingface_weights.h"
#include "training/rank_agreement.h"

namespace smp::training {
namespace {

// The votes of the ranks after a step. A sum above zero means that at least one rank says yes.
enum Vote { kStillWriting, kEndRequested, kTimeToSave, kVotes };

constexpr int kStartIdBytes = 4;

std::string folder_of_checkpoints(const std::string& run_dir) {
  return run_dir + "/" + runinfo::kCheckpointsFolder;
}

// Broadcasts a short text of rank 0.
std::string text_of_first(std::string text, comm::Communicator& world) {
  std::array<char, 256> buffer{};
  SMP_CHECK(text.size() < buffer.size());
  std::copy(text.begin(), text.end(), buffer.begin());
  world.broadcast(buffer.data(), static_cast<int64_t>(buffer.size()), DType::kU8, 0, "setup.agree")
      ->wait();
  return buffer.data();
}

}  // namespace

Checkpoints::Checkpoints(const Plan& plan, const TrainOptions& options,
                         parallel::ParallelModel& model, const feed::DataSource& data)
    : plan_(plan),
      options_(options),
      model_(model),
      copies_(std::make_unique<gpu::HostCopies>(model.gpu.get())),
      start_(options.run_dir.empty() ? Start{} : agree(options, model.groups->world())),
      store_(folder_of_checkpoints(options.run_dir), start_.id),
      training_(runinfo::record_training(plan.job, data.files())),
      best_(plan.job.training.evaluation),
      last_save_(std::chrono::steady_clock::now()) {
  counters_.seed = std::bit_cast<int64_t>(plan.job.training.seed);
  counters_.data_bytes = data.trained_size();
  counters_.has_loss_scale = model.loss_scale.guards();
  counters_.has_best = plan.job.training.evaluation.every_steps > 0;
  if (options_.run_dir.empty()) return;
  const CheckpointSpec& spec = plan.job.training.checkpoint;
  if (spec.every_steps > 0 || spec.every_minutes > 0 || plan.job.training.evaluation.keep_best) {
    writer_ = std::make_unique<checkpoint::CheckpointWriter>(
        store_, model.groups->world().rank(), pieces_to_save(model, counters_, *copies_));
  }
}

Checkpoints::~Checkpoints() = default;

int64_t Checkpoints::start() {
  if (options_.resume) {
    SMP_CHECK(!options_.run_dir.empty());
    return resume();
  }
  if (const std::string& folder = plan_.job.training.init_from; !folder.empty()) {
    const pretrained::HuggingFaceWeights weights(folder, plan_.job.model);
    std::vector<AgreedValue> held;
    add_files(held, "training.init_from", weights.files());
    check_ranks_agree(model_.groups->world(), options_.host, held, "setup.same");
    gpu::HostCopies copies(model_.gpu.get());
    for (const safetensors::TensorPiece& piece : weights_to_load(model_, copies))
      weights.read(piece);
    weights.check_files_unchanged();
    copies.store();
    model_.optimizer->adopt_weights();
  }
  return 0;
}

// Only rank 0 reads the folder: other ranks may see an older state of a shared file system.
Checkpoints::Start Checkpoints::agree(const TrainOptions& options, comm::Communicator& world) {
  Start start;
  if (world.rank() == 0) {
    start.id = random_hex(kStartIdBytes);
    const checkpoint::CheckpointStore store(folder_of_checkpoints(options.run_dir));
    if (options.resume) {
      start.checkpoint = options.resume_step ? store.of_step(*options.resume_step) : store.latest();
    }
  }
  return {text_of_first(start.id, world), text_of_first(start.checkpoint, world)};
}

int64_t Checkpoints::resume() {
  const std::string& name = start_.checkpoint;
  const files::FileIdentity manifest =
      files::identify_file(store_.folder() + "/" + name + "/" + runinfo::kManifestFile);
  check_ranks_agree(
      model_.groups->world(), options_.host,
      {{"the checkpoint to resume from", name + ", manifest of " + files::text_of(manifest)}},
      "setup.same");
  try {
    load(name);
  } catch (const checkpoint::CheckpointError& error) {
    const auto before = store_.before(name);
    throw checkpoint::CheckpointError(fmt::format(
        "{}{}", error.what(),
        before ? fmt::format(
                     "; to resume from the previous checkpoint, of step {}, give --resume={}",
                     *runinfo::step_of_checkpoint(*before), *runinfo::step_of_checkpoint(*before))
               : "; there is no earlier checkpoint"));
  }
  return counters_.step;
}

void Checkpoints::begin() {
  if (options_.run_dir.empty() || model_.groups->world().rank() != 0) return;
  record::cut_metrics(options_.run_dir + "/metrics.jsonl", counters_.step);
  if (!std::filesystem::exists(store_.folder())) return;
  store_.clean();
  if (plan_.job.training.evaluation.keep_best) store_.set_best(kept_best_);
}

void Checkpoints::load(const std::string& name) {
  checkpoint::CheckpointReader reader(store_.folder() + "/" + name);
  // Rank 0 checks first, because all ranks have the same job and its error says more than a wrong
  // tensor shape would.
  comm::Communicator& world = model_.groups->world();
  if (world.rank() == 0)
    runinfo::check_same_training(store_.folder() + "/" + name, reader.training(), training_);
  world.barrier("setup.agree")->wait();
  const std::vector<std::string> names = names_of_state(plan_, model_);
  reader.expect_only({names.begin(), names.end()});
  const TrainingCounters of_job = counters_;
  counters_.has_best = reader.find(kBestLoss) != nullptr;  // older checkpoints have none
  gpu::HostCopies copies(model_.gpu.get());
  for (const safetensors::TensorPiece& piece : pieces_to_load(model_, counters_, copies))
    reader.read(piece);
  copies.store();
  const TrainingCounters saved = counters_;
  if (saved.step != reader.step() || saved.step < 1) {
    throw checkpoint::CheckpointError(
        fmt::format("{}/{}: the tensors are from step {}, but manifest.json is from step {}; "
                    "resume from another checkpoint",
                    store_.folder(), name, saved.step, reader.step()));
  }
  if (saved.data_bytes != of_job.data_bytes) {
    throw ConfigError(
        fmt::format("{}/{}: the checkpoint's job trained on {} tokens or images, but this job has "
                    "{} after training.evaluation holds out its samples: hold out as many samples "
                    "as the checkpoint's job did",
                    store_.folder(), name, saved.data_bytes, of_job.data_bytes));
  }
  model_.optimizer->set_steps_done(saved.optimizer_steps);
  if (saved.has_loss_scale) {
    model_.loss_scale.restore({std::bit_cast<double>(saved.loss_scale_bits), saved.good_steps,
                               saved.overflows_left, saved.skipped_steps});
  }
  if (saved.has_best) {
    best_.restore({std::bit_cast<double>(saved.best_loss_bits), saved.best_step,
                   std::bit_cast<double>(saved.counted_loss_bits), saved.without_improvement});
  }
  counters_.has_best = of_job.has_best;
  if (plan_.job.training.evaluation.keep_best) find_best();
}

// Forgets the best evaluation if its checkpoint is missing. The checkpoint is missing if the run
// resumes from an earlier step, or did not keep it.
void Checkpoints::find_best() {
  comm::Communicator& world = model_.groups->world();
  if (world.rank() == 0) kept_best_ = checkpoint_of_best();
  if (text_of_first(kept_best_, world).empty()) best_.forget_lowest();
}

// The checkpoint of the best evaluation; "" = there is none. Several checkpoints may have its step;
// the one with the same loss is this training's.
std::string Checkpoints::checkpoint_of_best() const {
  for (const std::string& name : store_.list()) {
    if (best_.state().step == 0 || runinfo::step_of_checkpoint(name) != best_.state().step)
      continue;
    int64_t bits = 0;
    try {
      checkpoint::CheckpointReader(store_.folder() + "/" + name)
          .read({kBestLoss,
                 {1},
                 DType::kI64,
                 {0, 1, 0, 1},
                 0,
                 1,
                 reinterpret_cast<std::byte*>(&bits)});
    } catch (const checkpoint::CheckpointError&) {  // skip a damaged checkpoint
      continue;
    }
    if (std::bit_cast<double>(bits) == best_.state().loss) return name;
  }
  return "";
}

bool Checkpoints::is_time() const {
  const double minutes = plan_.job.training.checkpoint.every_minutes;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - last_save_;
  return minutes > 0 && since.count() >= 60 * minutes;
}

bool Checkpoints::after_step(int64_t done, int64_t steps, bool is_best) {
  if (options_.run_dir.empty()) return false;
  comm::Communicator& world = model_.groups->world();
  const bool written = !writer_ || writer_->done();  // throws the error of a failed save
  std::array<int64_t, kVotes> votes{};
  votes[kStillWriting] = written ? 0 : 1;
  votes[kEndRequested] = options_.end_requested && options_.end_requested() ? 1 : 0;
  votes[kTimeToSave] = world.rank() == 0 && is_time() ? 1 : 0;  // rank 0's clock decides
  world
      .all_reduce(votes.data(), votes.data(), kVotes, DType::kI64, comm::ReduceOp::kSum,
                  "save.agree")
      ->wait();
  if (pending_ > 0 && votes[kStillWriting] == 0) commit();
  const bool is_last = done == steps || best_.is_exhausted();
  const bool ends = votes[kEndRequested] > 0 && !is_last;
  const int64_t every = plan_.job.training.checkpoint.every_steps;
  const bool is_due = every > 0 && (done % every == 0 || is_last);
  is_best = is_best && plan_.job.training.evaluation.keep_best;
  if (is_due || ends || is_best || votes[kTimeToSave] > 0) save(done, is_best);
  if (ends) finish();
  return ends;
}

void Checkpoints::save(int64_t done, bool is_best) {
  if (pending_ > 0) {  // the previous save is still in progress: wait for it
    writer_->wait();
    model_.groups->world().barrier("save.wait")->wait();
    commit();
  }
  counters_.step = done;
  counters_.samples = done * plan_.job.training.global_batch.value();
  counters_.optimizer_steps = model_.optimizer->steps_done();
  const optim::LossScale::State& scale = model_.loss_scale.state();
  counters_.loss_scale_bits = std::bit_cast<int64_t>(scale.value);
  counters_.good_steps = scale.good_steps;
  counters_.overflows_left = scale.overflows_left;
  counters_.skipped_steps = scale.skipped_steps;
  counters_.best_loss_bits = std::bit_cast<int64_t>(best_.state().loss);
  counters_.best_step = best_.state().step;
  counters_.counted_loss_bits = std::bit_cast<int64_t>(best_.state().counted_loss);
  counters_.without_improvement = best_.state().without;
  if (!writer_) {
    writer_ = std::make_unique<checkpoint::CheckpointWriter>(
        store_, model_.groups->world().rank(), pieces_to_save(model_, counters_, *copies_));
  }
  copies_->fetch();
  writer_->start(done);
  pending_ = done;
  pending_is_best_ = is_best;
  last_save_ = std::chrono::steady_clock::now();
}

// All ranks have written: rank 0 commits the checkpoint, in the background.
void Checkpoints::commit() {
  const int64_t step = std::exchange(pending_, 0);
  comm::Communicator& world = model_.groups->world();
  if (world.rank() != 0) return;
  const int64_t keep = plan_.job.training.checkpoint.keep;
  writer_->then([this, step, keep, ranks = world.size(), is_best = pending_is_best_] {
    store_.commit(step, ranks, keep, training_, is_best);
  });
}

void Checkpoints::finish() {
  if (!writer_) return;
  writer_->wait();
  comm::Communicator& world = model_.groups->world();
  if (pending_ > 0) {
    world.barrier("save.wait")->wait();
    commit();
  }
  writer_->wait();
  world.barrier("save.wait")->wait();
}

}  // namespace smp::training
