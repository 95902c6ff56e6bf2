#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

// What the routers of a mixture of experts did in a step. Used by one thread.
namespace smp::record {

// Of one layer, over the global batch.
struct RouterMetrics {
  std::string layer;            // "layers.3"
  std::vector<int64_t> tokens;  // that chose each expert
  int64_t dropped = 0;          // choices that a full expert did not take
  double balance_loss = 0;      // with their factors, mean over the tokens
  double z_loss = 0;
};

// Tokens of the fullest expert over an even share.
double imbalance(const RouterMetrics& router);

// Of all layers together.
struct RouterSummary {
  double balance_loss = 0, z_loss = 0;  // sums
  double imbalance = 0;                 // the largest
  double dropped = 0;                   // share of all choices
};
RouterSummary summary_of(const std::vector<RouterMetrics>& routers);

// Looks for experts that hardly get tokens, over kSteps steps at a time, and warns when their
// number in a layer has grown.
class StarvationWatch {
 public:
  static constexpr int64_t kSteps = 50;
  static constexpr double kLeastShare = 0.05;  // of an even one

  // `out` may be null.
  explicit StarvationWatch(std::FILE* out) : out_(out) {}
  void add(int64_t step, const std::vector<RouterMetrics>& routers);

 private:
  std::FILE* const out_;
  int64_t steps_ = 0;
  std::vector<RouterMetrics> sums_;  // of those steps
  std::vector<int64_t> told_;        // starving experts of each layer
};

// "warning: step 50: 3 of 64 experts of layers.7 ...\n"; `sums` are those of the steps together.
std::string starvation_warning(int64_t step, const RouterMetrics& sums, int64_t starving);

}  // namespace smp::record
