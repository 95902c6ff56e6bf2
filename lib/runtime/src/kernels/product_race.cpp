#include "kernels/product_race.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/cpu_functions.h"
#include "smp/runtime/ledger/memory_ledger.h"

namespace smp::kernels {
namespace {

constexpr int64_t kMostSide = 384;      // of a matrix that is timed
constexpr int64_t kRowsOfThread = 256;  // 75 MFLOP with such a matrix
constexpr int64_t kMostRows = 8 * kRowsOfThread;
constexpr int kLeastTimes = 2;
constexpr int kFurtherRounds = 2;

// A product's times by one library; the first, which warms up, does not count.
struct LeastTime {
  int count = -1;
  double seconds = 0;

  void add(double one) {
    if (++count > 0) seconds = count == 1 ? one : std::min(seconds, one);
  }
};

// Factors and result of the products that are timed, in memory that all of them share.
class RaceOperands {
 public:
  explicit RaceOperands(const std::vector<program::SizedProduct>& products) {
    int64_t x = 0, matrix = 0;
    for (const program::SizedProduct& one : products) {
      x = std::max(x, one.rows * std::max(one.matrix.in, one.matrix.out));
      matrix = std::max(matrix, one.matrix.out * one.matrix.in);
    }
    x_ = at::ones({x});
    dy_ = at::ones({x});
    matrix_ = at::ones({matrix});
  }

  void compute(const program::SizedProduct& one, ProductLibrary library) const {
    const auto [kind, out, in] = one.matrix;
    const at::Tensor x = part_of(x_, one.rows, in), dy = part_of(dy_, one.rows, out);
    const at::Tensor matrix = part_of(matrix_, out, in);
    switch (kind) {
      case program::ProductKind::kForward: cpu_product_by(library, x, matrix); break;
      case program::ProductKind::kInputGradient: cpu_product_by(library, dy, matrix.t()); break;
      case program::ProductKind::kWeightGradient:
        cpu_add_product_by(library, dy, x, 1, matrix);
        break;
    }
  }

 private:
  static at::Tensor part_of(const at::Tensor& all, int64_t rows, int64_t cols) {
    return all.narrow(0, 0, rows * cols).view({rows, cols});
  }

  at::Tensor x_, dy_, matrix_;
};

}  // namespace

program::SizedProduct timed_for(const program::SizedProduct& product, int threads) {
  program::SizedProduct timed = product;
  timed.matrix.out = std::min(timed.matrix.out, kMostSide);
  timed.matrix.in = std::min(timed.matrix.in, kMostSide);
  timed.rows = std::min({timed.rows, kRowsOfThread * threads, kMostRows});
  return timed;
}

std::vector<runinfo::ProductTimes> race_products(const std::vector<program::SizedProduct>& products,
                                                 double seconds, const TimeProduct& time) {
  struct Runner {
    LeastTime onednn, torch;
  };
  std::vector<Runner> runners(products.size());
  double spent = 0;
  const auto run = [&](size_t i, int times) {
    for (int n = 0; n < 2 * times && spent < seconds; ++n) {
      const bool is_onednn = n % 2 == 0;
      const double one =
          time(products[i], is_onednn ? ProductLibrary::kOnednn : ProductLibrary::kTorch);
      spent += one;
      (is_onednn ? runners[i].onednn : runners[i].torch).add(one);
    }
  };
  for (size_t i = 0; i < products.size(); ++i) run(i, 1 + kLeastTimes);
  for (int round = 0; round < kFurtherRounds; ++round) {
    for (size_t i = 0; i < products.size(); ++i) run(i, 1);
  }
  std::vector<runinfo::ProductTimes> times;
  for (size_t i = 0; i < products.size(); ++i) {
    const auto& [onednn, torch] = runners[i];
    if (std::min(onednn.count, torch.count) >= kLeastTimes)
      times.push_back({products[i], onednn.seconds, torch.seconds});
  }
  return times;
}

std::vector<runinfo::ProductTimes> race_products_here(
    const std::vector<program::SizedProduct>& products, double seconds) {
  if (products.empty() || !has_onednn_product()) return {};
  using Clock = std::chrono::steady_clock;
  ledger::MemoryLedger apart(0, 0);
  const ledger::LedgerScope scope(apart);
  const RaceOperands operands(products);
  return race_products(products, seconds,
                       [&](const program::SizedProduct& product, ProductLibrary library) {
                         const Clock::time_point start = Clock::now();
                         operands.compute(product, library);
                         return std::chrono::duration<double>(Clock::now() - start).count();
                       });
}

}  // namespace smp::kernels
