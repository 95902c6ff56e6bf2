#include "smp/runtime/training/trainer.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "feed/data_source.h"
#include "feed/step_data.h"
#include "gpu/device_communicator.h"
#include "gpu/gpu.h"
#include "gpu/gpu_collectives.h"
#include "gpu/gpu_ledger.h"
#include "kernels/cpu_functions.h"
#include "record/cache_flushes.h"
#include "record/trace_session.h"
#include "smp/comm/device/staged_communicator.h"
#include "smp/comm/jobs/fabric.h"
#include "smp/plan/base/build_id.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/xxh64.h"
#include "smp/plan/data/token_data.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/files/atomic_file.h"
#include "smp/plan/model/model_flops.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/rendezvous/sockets/host_identity.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/optim/learning_rate.h"
#include "smp/runtime/parallel/parallelize.h"
#include "smp/runtime/parameters/huggingface_export.h"
#include "smp/tensorfiles/pretrained/kept_files.h"
#include "smp/tensorfiles/pretrained/tokenizer_files.h"
#include "training/checkpoints.h"
#include "training/evaluation.h"
#include "training/product_agreement.h"
#include "training/rank_agreement.h"
#include "training/step_reporter.h"

namespace smp::training {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t steps_of(const Plan& plan, const TrainOptions& options) {
  return options.steps.value_or(plan.job.training.steps);
}

void check_can_run(const Plan& plan, const TrainOptions& options, const comm::Communicator& world) {
  const int64_t steps = steps_of(plan, options);
  if (steps == 0) {
    throw ConfigError(
        "training.steps is 0, so the job can be planned but not trained: set training.steps to at "
        "least 1");
  }
  const std::vector<std::string> refused = rules::what_engine_cannot_run(plan);
  if (!refused.empty()) {
    throw ConfigError(
        fmt::format("the engine cannot run this plan:\n  {}", fmt::join(refused, "\n  ")));
  }
  if (plan.degrees.world() != world.size()) {
    throw ConfigError(fmt::format("the plan has {} ranks, but {} were started",
                                  plan.degrees.world(), world.size()));
  }
  if (options.gdr_use == device::GdrUse::kOn && plan.job.cluster.device != DeviceKind::kCuda)
    throw ConfigError(
        "SMP_GDRCOPY=on needs cluster.device: cuda; the plan has cluster.device: cpu");
  check_products(plan, options);
  check_fault(options.fault, world.size(), steps);
  if (options.run_dir.empty()) return;
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  record::prediction_for(plan, mesh.coord_of(world.rank()));  // the report needs it
}

// Checks that all ranks have the same build, plan and data. Hosts may have different files under
// the same name, and ranks started by hand may have another plan. Training would continue with
// samples and targets that do not belong together.
void check_same_job(const Plan& plan, const TrainOptions& options, const feed::DataSource& data,
                    comm::Communicator& world) {
  Plan closed = plan;
  close_plain_keys(closed.job);
  const std::string text = planfile::write_plan(closed);
  std::vector<AgreedValue> held = {
      {"smp-worker", fmt::format("build {}", own_build_id())},
      {"the plan", fmt::format("{:016x}", xxh64(text.data(), static_cast<int64_t>(text.size())))},
      {"start", options.resume_step
                    ? fmt::format("from the checkpoint of step {}", *options.resume_step)
                : options.resume ? "from the last checkpoint"
                                 : "anew"},
      {env::kCpuProducts, products_asked_for(options)}};
  add_files(held, "training.data.path", data.files());
  add_files(held, "training.evaluation.sets", data.evaluation_files());
  check_ranks_agree(world, options.host, held, "setup.same");
}

// Tells the user if a slow path is taken, and its cost.
void warn_of_slow_paths(const Plan& plan, const TrainOptions& options, int64_t rank) {
  const bool detour =
      plan.job.training.precision == Precision::kFp32 && !kernels::has_onednn_product();
  if (!detour || rank != 0 || options.progress == nullptr) return;
  std::fputs(
      "note: this torch was built without oneDNN, so matrix products use torch's own kernels; the "
      "results are the same, the speed is half on some CPUs\n",
      options.progress);
}

struct OpenedGpu {
  std::shared_ptr<gpu::Gpu> gpu;
  std::unique_ptr<device::GdrMemory> memory;  // the GPU's
};

// Null if the plan's device is cpu. Rank 0 opens its GPU first: if no rank can have one, rank 0's
// error is the run's.
OpenedGpu open_gpu(const Plan& plan, const TrainOptions& options, comm::Communicator& world) {
  const ClusterSpec& cluster = plan.job.cluster;
  if (cluster.device != DeviceKind::kCuda) return {};
  try {
    if (world.rank() > 0) world.barrier("setup.gpu")->wait();
    std::shared_ptr<gpu::Gpu> gpu =
        options.open_gpu({.local_rank = world.rank() % cluster.processes_per_host,
                          .memory_limit_bytes = cluster.memory_per_process_bytes,
                          .deterministic = plan.job.training.deterministic});
    auto memory = std::make_unique<device::GdrMemory>(gpu->memory(), options.gdr_use);
    if (world.rank() == 0) world.barrier("setup.gpu")->wait();
    if (options.progress != nullptr) {
      std::fputs(fmt::format("rank {} computes on {}, {}; {}\n", world.rank(), gpu->device().str(),
                             gpu->name(), memory->text())
                     .c_str(),
                 options.progress);
    }
    return {std::move(gpu), std::move(memory)};
  } catch (const std::exception& error) {
    world.abort(fmt::format("setup: {}", error.what()));
    throw;
  }
}

// While it lives, memory of torch's own threads counts for the rank.
class ProcessLedger {
 public:
  ProcessLedger(bool wanted, ledger::MemoryLedger& ledger) : wanted_(wanted) {
    if (wanted_) ledger::set_process_ledger(&ledger);
  }
  ~ProcessLedger() {
    if (wanted_) ledger::set_process_ledger(nullptr);
  }
  ProcessLedger(const ProcessLedger&) = delete;
  ProcessLedger& operator=(const ProcessLedger&) = delete;

 private:
  bool wanted_;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The first step is not measured, because it touches memory for the first time.
record::RunMeasurements run_measurements(const RunResult& result, int64_t tokens_per_step) {
  record::RunMeasurements facts = result.run;
  facts.steps = static_cast<int64_t>(result.losses.size());
  if (facts.steps == 0) return facts;
  facts.first_loss = result.losses.front();
  facts.last_loss = result.losses.back();
  const auto first = result.step_s.begin() + (facts.steps > 1 ? 1 : 0);
  const double seconds = std::accumulate(first, result.step_s.end(), 0.0);
  const auto measured = static_cast<double>(result.step_s.end() - first);
  facts.tokens_per_s = measured * static_cast<double>(tokens_per_step) / seconds;
  facts.measured_step_s = median({first, result.step_s.end()});
  return facts;
}

// The model flops utilization of a step that takes one second; nullopt if the model's flops or the
// accelerator's rate is not known.
std::optional<double> mfu_of_one_second(const Plan& plan) {
  const TrainingSpec& training = plan.job.training;
  const double peak = model::peak_flops_per_s(plan.job.cluster, training.precision.value());
  if (peak <= 0 || model::is_list(plan.job.model)) return std::nullopt;
  const double flops = model::model_flops(plan.job.model, training.sequence_length,
                                          static_cast<double>(training.global_batch.value()));
  return flops / peak / static_cast<double>(plan.degrees.world());
}

// The text that training.evaluation.patience ended the run.
std::string early_end(int64_t step, int64_t steps, const BestEvaluation& best) {
  const BestEvaluation::State& state = best.state();
  return fmt::format(
      "at step {} of {}: {} evaluations in a row without improvement (training.evaluation.patience)"
      "{}",
      step, steps, state.without,
      state.step > 0
          ? fmt::format("; the lowest loss, {:.4f}, was at step {}", state.loss, state.step)
          : "");
}

// Runs all steps of one rank. All weights are gathered when it returns.
void run_steps(const Plan& plan, const TrainOptions& options, const feed::DataSource& data,
               parallel::ParallelModel& model, Checkpoints& checkpoints,
               ledger::MemoryLedger& ledger, record::TraceSession& tracing, RunResult& result) {
  const TrainingSpec& training = plan.job.training;
  const int64_t steps = steps_of(plan, options);
  const int64_t tokens_per_step = training.global_batch.value() * training.sequence_length;
  const int64_t rank = ledger.rank();
  ledger.set_phase({"setup"});
  Evaluation evaluation(plan, data, *model.groups);
  const bool has_named_sets = !training.evaluation.sets.empty();
  feed::StepData batches(plan, data, model.parameters->layout());
  engine::Engine engine(plan, model, ledger,
                        evaluation.reader([&](int64_t step, int64_t first, int64_t count,
                                              const engine::SampleBuffers& out) {
                          batches.read(step, first, count, out);
                        }));
  result.first_step = checkpoints.start();
  if (result.first_step > steps) {
    throw ConfigError(
        fmt::format("the checkpoint was saved after step {}, but training.steps is {}: set "
                    "training.steps to at least {}",
                    result.first_step, steps, result.first_step));
  }
  batches.start(result.first_step, steps);
  // Nothing in the run's folder is changed until every rank is ready.
  model.groups->world().barrier("setup.ready")->wait();
  if (rank == 0 && options.on_ready) options.on_ready();
  checkpoints.begin();
  StepReporter reporter(plan, options, rank, result.first_step, steps);
  tracing.start(result.first_step + 1, model.actions);
  std::optional<record::CacheFlushes> flushes;
  if (model.gpu) flushes.emplace(plan, *model.gpu, rank, options.progress);
  record::StarvationWatch starvation(rank == 0 ? options.progress : nullptr);
  model.groups->world().barrier("setup.start")->wait();

  const std::optional<double> mfu_per_s = mfu_of_one_second(plan);
  BestEvaluation& best = checkpoints.best();
  double measured_s = 0, waited_before_s = model.groups->waited_s();
  int64_t step = result.first_step;
  for (; step < steps && !best.is_exhausted(); ++step) {
    ledger.set_phase({"start", step + 1});
    tracing.begin_step(step + 1);
    inject_fault_if_due(options.fault, rank, step + 1);
    const Clock::time_point start = Clock::now();
    const double exposed_before_s = model.groups->exposed_s();
    record::StepMetrics metrics;
    metrics.learning_rate = optim::learning_rate_at(training.optimizer, training.steps, step);
    const engine::StepResult done = engine.step(step, metrics.learning_rate);
    metrics.step = step + 1;
    metrics.loss = done.loss;
    metrics.grad_norm = done.grad_norm;
    if (training.precision == Precision::kFp16) {
      metrics.loss_scale = done.loss_scale;
      metrics.skipped_steps = model.loss_scale.state().skipped_steps;
      result.run.loss_scale = model.loss_scale.value();
      result.run.skipped_steps = metrics.skipped_steps;
    }
    metrics.step_s = seconds_since(start);
    tracing.end_step(step + 1);
    metrics.exposed_s = model.groups->exposed_s() - exposed_before_s;
    metrics.tokens_seen = (step + 1) * tokens_per_step;
    metrics.epochs = batches.epochs((step + 1) * training.global_batch.value());
    metrics.tokens_per_s = static_cast<double>(tokens_per_step) / metrics.step_s;
    if (mfu_per_s) metrics.mfu = *mfu_per_s / metrics.step_s;
    metrics.memory_live_bytes = ledger.live().bytes;
    metrics.memory_peak_bytes = ledger.peak().bytes;
    metrics.further_losses = done.further_losses;
    metrics.routers = done.routers;
    starvation.add(step + 1, done.routers);
    if (flushes) metrics.cache_flushes = flushes->of_step(step + 1);
    result.losses.push_back(done.loss);
    result.grad_norms.push_back(done.grad_norm);
    result.routers = done.routers;
    result.step_s.push_back(metrics.step_s);
    if (step == result.first_step && steps > step + 1) {
      waited_before_s = model.groups->waited_s();
    } else {
      measured_s += metrics.step_s;
    }
    bool is_best = false;
    if (evaluation.is_due(step + 1, steps)) {
      metrics.evaluation_loss = result.run.evaluation_loss = evaluation.loss(engine);
      if (has_named_sets) metrics.evaluation_losses = evaluation.losses();
      metrics.accuracy = result.run.accuracy = evaluation.accuracy();
      is_best = best.take(step + 1, *metrics.evaluation_loss);
    }
    reporter.report(metrics);
    if (options.progress_post != nullptr)
      options.progress_post->end_step(step + 1, steps, metrics.loss, metrics.tokens_per_s,
                                      metrics.step_s);
    if (options.on_step) options.on_step(metrics);
    ledger.set_phase({"checkpoint", step + 1});
    if (checkpoints.after_step(step + 1, steps, is_best)) {
      result.ended_on_request = true;
      break;
    }
  }
  engine.wait_all();
  tracing.finish();
  checkpoints.finish();
  if (evaluation.is_on()) {
    result.run.best_loss = best.state().loss;
    result.run.best_step = best.state().step;
  }
  if (step < steps && best.is_exhausted()) result.run.ended_early = early_end(step, steps, best);
  if (!result.ended_on_request) reporter.end(step);
  result.mine.rank = rank;
  result.mine.peak = ledger.peak();
  result.mine.host_peak_bytes = model.host->peak().bytes;
  result.mine.idle_s = model.groups->waited_s() - waited_before_s - evaluation.waited_s();
  result.mine.busy_s = measured_s - result.mine.idle_s;
  result.mine.traffic = model.groups->traffic();
  record::subtract_traffic(result.mine.traffic, evaluation.traffic());
  result.run = run_measurements(result, tokens_per_step);
}

// Writes the report first, so that it exists even if saving the weights fails. Frees the memory of
// training before the weights are saved.
void save(const Plan& plan, const TrainOptions& options, parallel::ParallelModel& model,
          ledger::MemoryLedger& ledger, const RunResult& result) {
  if (options.run_dir.empty()) return;
  ledger.set_phase({ledger::kSavePhase.data()});
  // A start that ran no steps keeps the report of the earlier ones.
  if (ledger.rank() == 0 && !result.losses.empty()) {
    files::write_file_atomically(options.run_dir + "/report.json",
                                 record::report_json(plan, result.run, result.ranks));
  }
  if (!options.save_weights || result.ended_on_request) return;
  const std::string state = options.run_dir + "/" + runinfo::kWeightsState;
  if (ledger.rank() == 0) std::filesystem::remove(state);
  model.layers.clear();
  model.optimizer.reset();
  model.parameters->drop_gradients();
  const std::string dir = options.run_dir + "/weights";
  const std::string saved = save_weights(plan, *model.parameters, model.groups->world(), dir);
  if (ledger.rank() > 0) return;
  if (options.progress != nullptr) std::fputs(saved.c_str(), options.progress);
  const std::string note = pretrained::keep_files(plan.job.training, dir);
  if (options.progress != nullptr) std::fputs(note.c_str(), options.progress);
  const int64_t steps = result.first_step + static_cast<int64_t>(result.losses.size());
  files::write_file_atomically(state, fmt::format("{{\"global_step\": {}}}\n", steps));
}

// Throws if ranks of an NCCL group share a GPU.
void check_own_gpus(const Plan& plan, const gpu::Gpu& gpu, comm::Communicator& world) {
  if (!gpu.device().is_cuda()) return;  // the tests' GPUs have no index
  const gpu::GpuLocation own{std::hash<std::string>()(sockets::own_host_identity()),
                             gpu.device().index()};
  std::vector<gpu::GpuLocation> all(static_cast<size_t>(world.size()));
  world.all_gather(&own, all.data(), sizeof(gpu::GpuLocation), DType::kU8, "setup.gpu")->wait();
  check_own_gpus(plan, world.rank(), all);
}

gpu::DeviceCollectivesLibrary& nccl_of(const Plan& plan, gpu::Gpu& gpu, comm::Communicator& world) {
  try {
    check_own_gpus(plan, gpu, world);
    return gpu.collectives();
  } catch (const std::exception& error) {
    world.abort(fmt::format("setup: {}", error.what()));
    throw;
  }
}

void abort_peers(const std::exception& error, const ledger::MemoryLedger& ledger,
                 comm::Communicator& world, const TrainOptions& options) {
  const std::string phase = to_string(ledger.phase());
  if (options.failed_in != nullptr) *options.failed_in = phase;
  world.abort(fmt::format("{}: {}", phase, error.what()));
}

// Allocates message buffers, charged to the calling thread's ledger.
device::StagedCommunicator::Allocate charged_buffers(comm::Communicator& world) {
  return [&world](int64_t bytes) {
    const ledger::ItemScope item("message buffers");
    auto charge = std::make_shared<ledger::MemoryCharge>(MemoryCategory::kCommunication, bytes);
    const auto memory = world.allocate_symmetric(bytes);
    return std::shared_ptr<std::byte[]>(memory.get(), [memory, charge](std::byte*) {});
  };
}

}  // namespace

RunResult train(const Plan& plan, comm::Communicator& world, const TrainOptions& options) {
  check_can_run(plan, options, world);
  const auto [gpu, gpu_memory] = open_gpu(plan, options, world);  // before torch asks for one
  warn_of_slow_paths(plan, options, world.rank());
  ledger::install_counting_allocator();
  if (options.threads > 0) at::set_num_threads(options.threads);
  ledger::MemoryLedger ledger(world.rank(), gpu ? 0 : plan.job.cluster.memory_per_process_bytes);
  if (options.progress_post != nullptr) ledger.post_phases(*options.progress_post);
  const ledger::LedgerScope scope(ledger);
  const ProcessLedger process(options.owns_process, ledger);
  std::optional<gpu::GpuLedger> on_gpu;
  std::optional<device::StagedCommunicator> staged;
  std::optional<gpu::DeviceCommunicator> talking;
  if (gpu) {
    on_gpu.emplace(*gpu, ledger);
    staged.emplace(world, *gpu_memory, charged_buffers(world));
    if (gpu::uses_nccl(plan, world.rank()))
      talking.emplace(*staged, world, *gpu_memory, nccl_of(plan, *gpu, world),
                      options.comm_timeout);
  }
  comm::Communicator& by_host = staged ? static_cast<comm::Communicator&>(*staged) : world;

  record::TraceSession tracing(plan, world, options.run_dir, options.progress,
                               gpu ? &gpu->marks() : nullptr);  // outlives the calls
  // These outlive the handler below, so the peers learn the cause before the groups close.
  parallel::ParallelModel model;
  std::optional<ledger::LedgerScope> on_host;
  std::unique_ptr<Checkpoints> checkpoints;
  try {
    const std::unique_ptr<feed::DataSource> data = feed::open_data(plan);
    if (world.rank() == 0 && data->tokens() != nullptr)  // rank 0 saves it
      pretrained::check_tokenizer(plan.job, data->tokens()->manifests());
    check_same_job(plan, options, *data, world);
    const auto products = agree_on_products(plan, options, world);
    model = parallel::apply_parallelism(plan, by_host, ledger, gpu, options.ranks_of_host,
                                        talking ? &*talking : nullptr);
    if (options.progress_post != nullptr) model.groups->post_progress(*options.progress_post);
    if (!plan.job.training.trace.steps.empty()) model.groups->trace(tracing.tracer());
    if (gpu) on_host.emplace(*model.host);
    const ledger::MemoryWatch::Show shown(options.memory_watch, ledger, *model.host);
    checkpoints = std::make_unique<Checkpoints>(plan, options, model, *data);
    RunResult result;
    result.run.cpu_products = products;
    run_steps(plan, options, *data, model, *checkpoints, ledger, tracing, result);
    if (result.run.ended_early && ledger.rank() == 0 && options.progress != nullptr) {
      std::fputs(fmt::format("ended {}\n", *result.run.ended_early).c_str(), options.progress);
    }
    result.ranks = record::gather_rank_measurements(result.mine, world);
    save(plan, options, model, ledger, result);
    return result;
  } catch (const c10::OutOfMemoryError& error) {
    const ledger::OutOfMemory refused =
        gpu::gpu_out_of_memory(ledger, error.what_without_backtrace());
    abort_peers(refused, ledger, world, options);
    tracing.abandon();
    throw refused;
  } catch (const std::exception& error) {
    abort_peers(error, ledger, world, options);
    tracing.abandon();
    throw;
  }
}

}  // namespace smp::training
