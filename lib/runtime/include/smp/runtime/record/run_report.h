#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/ledger/memory_ledger.h"

// report.json: the run beside its plan, for each rank predicted and measured bytes of memory and of
// traffic. Pure but for gather_rank_facts.
namespace smp::record {

// What one rank measured.
struct RankFacts {
  int64_t rank = 0;
  ledger::MemoryUse peak;           // its phase is readable on the rank itself only
  int64_t host_peak_bytes = 0;      // of what was offloaded
  std::string peak_phase;           // set by gather_rank_facts
  double busy_s = 0;                // computing, in all measured steps
  double idle_s = 0;                // waiting for others, in all measured steps
  int64_t resident_peak_bytes = 0;  // of the process, as the system sees it; set by gathering
  std::vector<comm::TrafficCount> traffic;  // of all its groups; see add_traffic
};

// Adds the counts of one group, joining rows of the same label, op and group size.
void add_traffic(std::vector<comm::TrafficCount>& all,
                 const std::vector<comm::TrafficCount>& group);

// Takes counts out again: of messages that no step sends.
void subtract_traffic(std::vector<comm::TrafficCount>& all,
                      const std::vector<comm::TrafficCount>& part);

// Every rank's facts in rank order, on every rank. Collective; traffic "save.report".
std::vector<RankFacts> gather_rank_facts(const RankFacts& mine, comm::Communicator& world);

// What the run as a whole measured.
struct RunFacts {
  int64_t steps = 0;
  double first_loss = 0;
  double last_loss = 0;
  std::optional<double> loss_scale;       // fp16: after the last step
  int64_t skipped_steps = 0;              // fp16: whose gradients overflowed
  std::optional<double> evaluation_loss;  // the last one
  std::optional<double> accuracy;         // of that evaluation, where samples are classified
  double best_loss = 0;   // with evaluation: the lowest one, infinite where none is known
  int64_t best_step = 0;  // after which it was taken; 0 = none is known
  std::optional<std::string> ended_early;  // before the last step: where and why
  double tokens_per_s = 0;                 // of the measured steps
  double measured_step_s = 0;              // median
};

// What the plan predicts for a rank at `coord`. Throws ConfigError when it has no such class.
const RankPrediction& prediction_for(const Plan& plan, const mesh::Coord& coord);

// What it predicts, by category.
ledger::CategoryBytes bytes_by_category(const RankPrediction& prediction);

// The content of report.json. Idle is the share of the measured time that a rank waits. Wire bytes
// are of the whole run: those of one planned step times `steps`, against the counted ones without
// labels "setup.*" and "save.*".
std::string report_json(const Plan& plan, const RunFacts& run, const std::vector<RankFacts>& ranks);

}  // namespace smp::record
