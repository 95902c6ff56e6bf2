#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/ledger/memory_ledger.h"

// report.json: the run beside its plan, with the predicted and measured bytes of memory and traffic
// of each rank. Pure except gather_rank_measurements().
namespace smp::record {

// The measurements of one rank.
struct RankMeasurements {
  int64_t rank = 0;
  ledger::MemoryUse peak;           // its phase is valid on the rank itself only
  int64_t host_peak_bytes = 0;      // of offloaded tensors
  std::string peak_phase;           // set by gather_rank_measurements
  double busy_s = 0;                // computing, in all measured steps
  double idle_s = 0;                // waiting for others, in all measured steps
  int64_t resident_peak_bytes = 0;  // of the process, as the system sees it; set by gathering
  std::vector<comm::TrafficCount> traffic;  // of all its groups; see add_traffic
};

// Adds the counts of one group, joining rows of the same label, op and group size.
void add_traffic(std::vector<comm::TrafficCount>& all,
                 const std::vector<comm::TrafficCount>& group);

// Subtracts the counts of messages that are not part of a step.
void subtract_traffic(std::vector<comm::TrafficCount>& all,
                      const std::vector<comm::TrafficCount>& part);

// Every rank's measurements in rank order, on every rank. Collective; traffic "save.report".
std::vector<RankMeasurements> gather_rank_measurements(const RankMeasurements& mine,
                                                       comm::Communicator& world);

// Of the products with matrices in the plan's layers, in fp32 on CPUs: how many each library makes.
struct ProductCounts {
  int64_t onednn = 0, torch = 0;
};

// The measurements of the run as a whole.
struct RunMeasurements {
  int64_t steps = 0;
  double first_loss = 0;
  double last_loss = 0;
  std::optional<double> loss_scale;       // fp16: after the last step
  int64_t skipped_steps = 0;              // fp16: steps whose gradients overflowed
  std::optional<double> evaluation_loss;  // the last one
  std::optional<double> accuracy;         // of that evaluation, where samples are classified
  double best_loss = 0;   // with evaluation: the lowest one, infinite where none is known
  int64_t best_step = 0;  // after which it was taken; 0 = none is known
  std::optional<std::string> ended_early;  // before the last step: where and why
  std::optional<ProductCounts> cpu_products;
  double tokens_per_s = 0;     // of the measured steps
  double measured_step_s = 0;  // median
};

// The plan's prediction for a rank at `coord`. Throws ConfigError if the plan has none.
const RankPrediction& prediction_for(const Plan& plan, const mesh::Coord& coord);

// The predicted bytes by category.
ledger::CategoryBytes bytes_by_category(const RankPrediction& prediction);

// The content of report.json. Idle is the share of the measured time that a rank waits. Wire bytes
// are totals of the run: predicted are those of one planned step times `steps`, measured are the
// counted ones without labels "setup.*" and "save.*".
std::string report_json(const Plan& plan, const RunMeasurements& run,
                        const std::vector<RankMeasurements>& ranks);

}  // namespace smp::record
