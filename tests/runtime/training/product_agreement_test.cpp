#include "training/product_agreement.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>

#include "files_and_errors.h"
#include "kernels/cpu_functions.h"
#include "kernels/product_choice.h"
#include "runtime/short_runs.h"
#include "smp/plan/layout/plan_products.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::training;
using kernels::ProductLibrary;
using parity::LayoutCase;

namespace {

// Every product the same.
kernels::TorchSpeeds all_at(double speed) {
  return [speed](const std::vector<program::SizedProduct>& products) {
    return std::vector<double>(products.size(), speed);
  };
}

// What the ranks of a plan come to, each with the options that it is given.
std::vector<std::optional<record::ProductCounts>> agreed(
    const Plan& plan, const std::function<TrainOptions(int)>& options) {
  std::vector<std::optional<record::ProductCounts>> counts(
      static_cast<size_t>(plan.degrees.world()));
  jobs::run_ranks(static_cast<int>(counts.size()), [&](comm::Communicator& world) {
    counts[static_cast<size_t>(world.rank())] =
        agree_on_products(plan, options(world.rank()), world);
  });
  kernels::choose_products({});
  return counts;
}

RunResult trained(const test::ShortRuns& runs, const Plan& plan, TrainOptions options) {
  RunResult result = runs.run(plan, options);
  kernels::choose_products({});
  return result;
}

}  // namespace

TEST_CASE("rank 0's speeds choose for all ranks, and no other rank measures") {
  if (!kernels::has_onednn_product()) return;
  const test::ShortRuns runs;
  const Plan plan = runs.plan(LayoutCase{"t2", {.tensor = 2}}, Precision::kFp32);
  const std::vector<program::SizedProduct> products = layout::plan_products(plan);
  const auto counts = agreed(plan, [&](int rank) {
    TrainOptions options;
    options.torch_speeds = [rank](const std::vector<program::SizedProduct>& asked) {
      if (rank > 0) throw std::runtime_error("a rank measures beside rank 0");
      std::vector<double> speeds(asked.size(), 1);
      speeds[1] = speeds[3] = 1.5;
      return speeds;
    };
    return options;
  });
  for (const auto& of_rank : counts) {
    REQUIRE(of_rank.has_value());
    CHECK(of_rank->torch == 2);
    CHECK(of_rank->onednn == static_cast<int64_t>(products.size()) - 2);
  }
}

TEST_CASE("nothing is measured of other precisions, of GPUs, and of deterministic runs") {
  const test::ShortRuns runs;
  const auto counts_of = [&](const Plan& plan) {
    return agreed(plan,
                  [](int) {
                    TrainOptions options;
                    options.torch_speeds = [](const auto&) -> std::vector<double> {
                      throw std::runtime_error("it measures");
                    };
                    return options;
                  })
        .front();
  };
  const LayoutCase one{"1", {}};
  for (const Precision precision : {Precision::kFp64, Precision::kBf16, Precision::kFp16})
    CHECK(!counts_of(runs.plan(one, precision)));
  Plan plan = runs.plan(one, Precision::kFp32);
  plan.job.training.deterministic = true;
  const auto counts = counts_of(plan);
  REQUIRE(counts.has_value());
  if (kernels::has_onednn_product()) CHECK(counts->torch == 0);
  plan.job.cluster.device = DeviceKind::kCuda;
  CHECK(!counts_of(plan));
}

TEST_CASE("a library for products that the plan does not have is refused") {
  const test::ShortRuns runs;
  TrainOptions options;
  options.products = ProductLibrary::kTorch;
  const auto error = [&](const Plan& plan) {
    return error_of([&] { check_products(plan, options); });
  };
  const LayoutCase one{"1", {}};
  CHECK(error(runs.plan(one, Precision::kFp32)) == "no error");
  CHECK(error(runs.plan(one, Precision::kBf16)) ==
        "SMP_CPU_PRODUCTS=torch needs training.precision: fp32; the plan has bf16");
  Plan plan = runs.plan(one, Precision::kFp32);
  plan.job.cluster.device = DeviceKind::kCuda;
  CHECK(error(plan) ==
        "SMP_CPU_PRODUCTS=torch needs cluster.device: cpu; the plan has cluster.device: cuda");
}

TEST_CASE("ranks that are told to use different libraries do not train") {
  const test::ShortRuns runs;
  const Plan plan = runs.plan(LayoutCase{"t2", {.tensor = 2}}, Precision::kFp32);
  std::mutex mutex;
  std::string text;
  jobs::run_ranks(2, [&](comm::Communicator& world) {
    TrainOptions options = test::options_of("", 1);
    options.threads = 1;
    if (world.rank() == 1) options.products = ProductLibrary::kTorch;
    const std::string error = error_of([&] { train(plan, world, options); });
    const std::scoped_lock lock(mutex);
    text = error;
  });
  kernels::choose_products({});
  CHECK(text.find("\n  rank 1: SMP_CPU_PRODUCTS: torch; rank 0: not set") != text.npos);
}

// That the list of a plan's products has all that a step makes: otherwise some would be oneDNN's.
TEST_CASE("a run with torch's products learns the same as one with oneDNN's, in no more memory") {
  if (!kernels::has_onednn_product()) return;
  const test::ShortRuns runs;
  for (const ModelSpec& model : {parity::gpt2_model(), parity::llama_model(), parity::t5_model(),
                                 parity::mixtral_model(), parity::image_model()}) {
    for (const int64_t tensor : {1, 2}) {
      CAPTURE(model.name);
      CAPTURE(tensor);
      const Plan plan = runs.plan(LayoutCase{"", {.tensor = tensor}}, Precision::kFp32, model);
      TrainOptions options = test::options_of("", 3);
      const RunResult ours = trained(runs, plan, options);
      REQUIRE(ours.run.cpu_products.has_value());
      CHECK(ours.run.cpu_products->torch == 0);
      options.torch_speeds = all_at(kernels::kLeastTorchSpeed);
      const RunResult chosen = trained(runs, plan, options);
      CHECK(chosen.run.cpu_products->onednn == 0);
      options.torch_speeds = nullptr;
      options.products = ProductLibrary::kTorch;
      const RunResult forced = trained(runs, plan, options);
      CHECK(forced.run.cpu_products->torch == chosen.run.cpu_products->torch);
      CHECK(chosen.losses == forced.losses);
      CHECK(chosen.grad_norms == forced.grad_norms);
      for (size_t i = 0; i < ours.losses.size(); ++i)
        CHECK(std::abs(ours.losses[i] - forced.losses[i]) <=
              tolerance::kF32Gradient * ours.losses[i]);
      CHECK(forced.mine.peak.bytes <= ours.mine.peak.bytes);
    }
  }
}
