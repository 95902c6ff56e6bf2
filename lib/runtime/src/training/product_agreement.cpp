#include "training/product_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu_functions.h"
#include "kernels/product_choice.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/layout/plan_products.h"
#include "smp/plan/spec/job_names.h"

namespace smp::training {
namespace {

using kernels::ProductLibrary;

bool has_choice(const Plan& plan) {
  return plan.job.cluster.device == DeviceKind::kCpu &&
         plan.job.training.precision == Precision::kFp32;
}

// Of each product; the same on all ranks. With training.deterministic nothing depends on the host.
std::vector<double> agreed_speeds(const Plan& plan, const TrainOptions& options,
                                  const std::vector<program::SizedProduct>& products,
                                  comm::Communicator& world) {
  std::vector<double> speeds(products.size());
  if (products.empty() || plan.job.training.deterministic || !kernels::has_onednn_product())
    return speeds;
  if (world.rank() == 0 && options.torch_speeds) speeds = options.torch_speeds(products);
  world
      .broadcast(speeds.data(), static_cast<int64_t>(speeds.size()), DType::kF64, 0,
                 "setup.products")
      ->wait();
  return speeds;
}

std::string words_of(const record::ProductCounts& counts, const std::vector<double>& speeds) {
  if (speeds.empty()) return fmt::format("all by torch's own library ({})", env::kCpuProducts);
  return fmt::format("{} of {} by torch's own library, up to {:.1f}x as fast here", counts.torch,
                     counts.torch + counts.onednn, *std::max_element(speeds.begin(), speeds.end()));
}

}  // namespace

void check_products(const Plan& plan, const TrainOptions& options) {
  if (!options.products) return;
  const std::string asked = fmt::format("{}={}", env::kCpuProducts, products_asked_for(options));
  if (plan.job.cluster.device != DeviceKind::kCpu)
    throw ConfigError(asked + " needs cluster.device: cpu; the plan has cluster.device: cuda");
  if (plan.job.training.precision != Precision::kFp32) {
    throw ConfigError(fmt::format("{} needs training.precision: fp32; the plan has {}", asked,
                                  name_of(plan.job.training.precision.value())));
  }
  if (*options.products == ProductLibrary::kOnednn && !kernels::has_onednn_product())
    throw ConfigError(asked + ": this torch was built without oneDNN");
}

std::string products_asked_for(const TrainOptions& options) {
  if (!options.products) return "not set";
  return *options.products == ProductLibrary::kOnednn ? "onednn" : "torch";
}

std::optional<record::ProductCounts> agree_on_products(const Plan& plan,
                                                       const TrainOptions& options,
                                                       comm::Communicator& world) {
  kernels::ProductChoice choice;
  if (!has_choice(plan)) {
    kernels::choose_products(choice);
    return std::nullopt;
  }
  const std::vector<program::SizedProduct> products = layout::plan_products(plan);
  std::vector<double> speeds;
  if (options.products) {
    choice.otherwise = *options.products;
  } else {
    speeds = agreed_speeds(plan, options, products, world);
    choice = kernels::choice_of(products, speeds);
  }
  const bool all_by_torch =
      choice.otherwise == ProductLibrary::kTorch || !kernels::has_onednn_product();
  record::ProductCounts counts;
  counts.torch = static_cast<int64_t>(all_by_torch ? products.size() : choice.by_torch.size());
  counts.onednn = static_cast<int64_t>(products.size()) - counts.torch;
  kernels::choose_products(std::move(choice));
  const bool is_said = counts.torch > 0 && kernels::has_onednn_product();
  if (is_said && world.rank() == 0 && options.progress != nullptr)
    std::fputs(fmt::format("fp32 products: {}\n", words_of(counts, speeds)).c_str(),
               options.progress);
  return counts;
}

}  // namespace smp::training
