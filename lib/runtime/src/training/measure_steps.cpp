#include "smp/runtime/training/measure_steps.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "kernels/cpu_functions.h"
#include "kernels/product_choice.h"
#include "kernels/product_race.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/plan_products.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/text/json.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/training/product_speeds.h"

namespace smp::training {
namespace {

constexpr int64_t kSequence = 256, kVocabulary = 256;
constexpr int64_t kRows = 512, kInner = 1024, kColumns = 1024;  // of the large product
constexpr int64_t kVector = 8 << 20;                            // elements: 32 MiB
constexpr double kRepeatS = 0.06;  // of computing, for the repetitions of one measurement
constexpr int kLeastRepeats = 3;
constexpr int kMostRepeats = 20;
constexpr double kMeasureSeconds = 0.25;  // for the products of the steps of one width

double middle_of(std::vector<double> seconds) {
  const auto at = seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), at, seconds.end());
  return *at;
}

// Of this thread on a CPU: what else runs on the host does not count.
double computed_s() {
  timespec now{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
    throw std::system_error(errno, std::generic_category(), "clock_gettime");
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The median of repetitions, after one that warms up caches.
double repeated_s(const std::function<void()>& work) {
  work();
  std::vector<double> seconds;
  double sum = 0;
  for (int i = 0; i < kMostRepeats && (i < kLeastRepeats || sum < kRepeatS); ++i) {
    const double start = computed_s();
    work();
    seconds.push_back(computed_s() - start);
    sum += seconds.back();
  }
  return middle_of(seconds);
}

// `program` on so many threads at once, each a rank of one thread. The mean of what they return.
using Program = std::function<std::vector<double>()>;
std::vector<double> on_ranks(int64_t count, const Program& program) {
  std::mutex mutex;
  std::vector<double> sums;
  std::exception_ptr failure;
  std::vector<std::thread> all;
  for (int64_t i = 0; i < count; ++i) {
    all.emplace_back([&] {
      try {
        at::set_num_threads(1);
        const std::vector<double> mine = program();
        const std::lock_guard lock(mutex);
        sums.resize(mine.size());
        for (size_t k = 0; k < mine.size(); ++k) sums[k] += mine[k] / static_cast<double>(count);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  if (failure) std::rethrow_exception(failure);
  return sums;
}

Plan small_plan(int64_t hidden_size, int64_t blocks, int64_t microbatches) {
  Plan plan;
  JobSpec& job = plan.job;
  job.name = "measure";
  ModelSpec& model = job.model;
  model::set_family(model, ModelFamily::kGpt2);
  model.num_layers = blocks;
  model.hidden_size = hidden_size;
  model.head_dim = 64;
  model.num_heads = model.num_kv_heads = hidden_size / model.head_dim;
  model.ffn_hidden_size = 4 * hidden_size;
  model.vocab_size = kVocabulary;
  model.max_positions = kSequence;
  model.tied_embeddings = true;
  job.training.sequence_length = kSequence;
  job.training.micro_batch = 1;
  job.training.microbatches = job.training.global_batch = microbatches;
  job.training.precision = Precision::kFp32;
  job.training.steps = 1;
  ParallelSpec& parallel = job.parallel;
  parallel.pipeline_parallel_degree = parallel.tensor_parallel_degree =
      parallel.sharded_data_parallel_degree = 1;
  parallel.sharding = Sharding::kNone;
  parallel.shard_optimizer_state = false;
  parallel.pipeline = PipelineKind::kInterleaved;
  parallel.active_microbatches = microbatches;
  parallel.delayed_parameter_initialization = true;
  close_plain_keys(job);
  plan.degrees = rules::degrees_of(job);
  return plan;
}

engine::ReadSamples equal_tokens() {
  return [](int64_t, int64_t, int64_t count, const engine::SampleBuffers& out) {
    for (const model::BatchField field : {model::BatchField::kTokens, model::BatchField::kTargets})
      if (out.integers(field) != nullptr)
        std::fill_n(out.integers(field), count * kSequence, int64_t{1});
  };
}

double median_step_s(const Plan& plan) {
  double seconds = 0;
  jobs::run_ranks(1, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    ledger::MemoryLedger ledger(0, 0);
    const ledger::LedgerScope scope(ledger);
    parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
    engine::Engine engine(plan, model, ledger, equal_tokens());
    int64_t step = 0;
    seconds = repeated_s([&] { engine.step(step++, 1e-4); });
    engine.wait_all();
  });
  return seconds;
}

// The products of the plan's steps are made as in a run of one thread. Returns their times.
std::vector<runinfo::ProductTimes> choose_as_a_run(const Plan& plan) {
  const std::vector<program::SizedProduct> products = layout::plan_products(plan);
  std::vector<runinfo::ProductTimes> times;
  system::HostKey one_thread;
  one_thread.cpus = 1;
  const kernels::TorchSpeeds speeds =
      stored_torch_speeds("", one_thread, [&](const std::vector<program::SizedProduct>& unknown) {
        return times = kernels::race_products_here(unknown, kMeasureSeconds);
      });
  on_ranks(1, [&] {
    kernels::choose_products(kernels::choice_of(products, speeds(products)));
    return std::vector<double>();
  });
  return times;
}

void measure_steps(int64_t ranks, int64_t hidden_size, int64_t blocks, MeasuredHost& measured) {
  constexpr int64_t kFew = 1, kMany = 2;
  const Plan few = small_plan(hidden_size, blocks, kFew);
  const Plan many = small_plan(hidden_size, blocks, kMany);
  const std::vector<runinfo::ProductTimes> times = choose_as_a_run(few);
  measured.products.insert(measured.products.end(), times.begin(), times.end());
  const std::vector<double> seconds = on_ranks(ranks, [&] {
    return std::vector<double>{median_step_s(few), median_step_s(many)};
  });
  MeasuredSteps steps{ranks, blocks, hidden_size, kSequence, 0, 0};
  steps.microbatch_s = (seconds[1] - seconds[0]) / (kMany - kFew);
  steps.update_s = std::max(0.0, seconds[0] - steps.microbatch_s);
  measured.steps.push_back(steps);
}

double faster_product_s(const at::Tensor& a, const at::Tensor& b) {
  const auto seconds_by = [&](kernels::ProductLibrary library) {
    return repeated_s([&] { kernels::cpu_product_by(library, a, b); });
  };
  const double by_torch = seconds_by(kernels::ProductLibrary::kTorch);
  if (!kernels::has_onednn_product()) return by_torch;
  return std::min(by_torch, seconds_by(kernels::ProductLibrary::kOnednn));
}

}  // namespace

MeasuredHost measure_host(int64_t cpus) {
  MeasuredHost measured;
  measured.instruction_set = at::get_cpu_capability();
  const std::vector<double> kernels = on_ranks(cpus, [] {
    const at::Tensor a = at::ones({kRows, kInner}), b = at::ones({kColumns, kInner});
    const double matmul_s = faster_product_s(a, b);
    const at::Tensor x = at::ones({kVector}), y = at::ones({kVector});
    at::Tensor sum = at::ones({kVector});
    const double sum_s = repeated_s([&] { at::add_out(sum, x, y); });
    return std::vector<double>{matmul_s, sum_s};
  });
  measured.matmul_flops_per_s = 2.0 * kRows * kInner * kColumns / kernels[0];
  measured.memory_bytes_per_s = 3.0 * kVector * sizeof(float) / kernels[1];
  measure_steps(cpus, 128, 2, measured);
  measure_steps(cpus, 256, 2, measured);
  measure_steps(cpus, 512, 1, measured);
  kernels::choose_products({});
  return measured;
}

std::string measured_json(const MeasuredHost& measured) {
  text::OrderedJson json = {{"instruction_set", measured.instruction_set},
                            {"matmul_flops_per_s", measured.matmul_flops_per_s},
                            {"memory_bytes_per_s", measured.memory_bytes_per_s}};
  text::OrderedJson steps = text::OrderedJson::array();
  for (const MeasuredSteps& one : measured.steps) {
    steps.push_back({{"ranks", one.ranks},
                     {"blocks", one.blocks},
                     {"hidden_size", one.hidden_size},
                     {"sequence_length", one.sequence_length},
                     {"microbatch_s", one.microbatch_s},
                     {"update_s", one.update_s}});
  }
  json["steps"] = std::move(steps);
  return json.dump() + "\n" + runinfo::lines_of(measured.products);
}

}  // namespace smp::training
