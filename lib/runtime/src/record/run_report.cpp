#include "smp/runtime/record/run_report.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/layout/traffic.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/text/json.h"

namespace smp::record {
namespace {

constexpr size_t kMaxRows = 48;  // labels of a rank; about a dozen are in use

// RankMeasurements in messages: the same size on every rank, whole int64s.
struct PackedRow {
  std::array<char, 40> label{};
  int64_t op = 0, group_size = 0, calls = 0, wire_bytes = 0;
};
struct PackedMeasurements {
  int64_t rank = 0, peak_bytes = 0, host_peak_bytes = 0, resident_peak_bytes = 0;
  ledger::CategoryBytes by_category{};
  std::array<char, 80> phase{};
  double busy_s = 0, idle_s = 0;
  int64_t rows = 0;
  std::array<PackedRow, kMaxRows> traffic{};
};
static_assert(std::is_trivially_copyable_v<PackedMeasurements> &&
              sizeof(PackedMeasurements) % 8 == 0);

template <size_t N>
void pack(const std::string& text, std::array<char, N>& out) {
  text.copy(out.data(), N - 1);  // a longer text is cut; the rest stays zero
}

int64_t resident_peak_bytes() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * 1024 : 0;
}

PackedMeasurements pack(const RankMeasurements& facts) {
  SMP_CHECK(facts.traffic.size() <= kMaxRows);
  PackedMeasurements packed;
  packed.rank = facts.rank;
  packed.peak_bytes = facts.peak.bytes;
  packed.host_peak_bytes = facts.host_peak_bytes;
  packed.resident_peak_bytes = resident_peak_bytes();
  packed.by_category = facts.peak.by_category;
  pack(to_string(facts.peak.phase), packed.phase);
  packed.busy_s = facts.busy_s;
  packed.idle_s = facts.idle_s;
  packed.rows = static_cast<int64_t>(facts.traffic.size());
  for (size_t i = 0; i < facts.traffic.size(); ++i) {
    const comm::TrafficCount& row = facts.traffic[i];
    PackedRow& out = packed.traffic[i];
    pack(row.label, out.label);
    out.op = static_cast<int64_t>(row.op);
    out.group_size = row.group_size;
    out.calls = row.calls;
    out.wire_bytes = row.wire_bytes;
  }
  return packed;
}

RankMeasurements unpack(const PackedMeasurements& packed) {
  RankMeasurements facts;
  facts.rank = packed.rank;
  facts.peak.bytes = packed.peak_bytes;
  facts.peak.by_category = packed.by_category;
  facts.peak_phase = packed.phase.data();
  facts.host_peak_bytes = packed.host_peak_bytes;
  facts.resident_peak_bytes = packed.resident_peak_bytes;
  facts.busy_s = packed.busy_s;
  facts.idle_s = packed.idle_s;
  for (size_t i = 0; i < static_cast<size_t>(packed.rows); ++i) {
    const PackedRow& row = packed.traffic[i];
    facts.traffic.push_back({row.label.data(), static_cast<mesh::CollectiveOp>(row.op),
                             static_cast<int>(row.group_size), row.calls, row.wire_bytes});
  }
  return facts;
}

bool is_planned(const std::string& label) {
  return !label.starts_with("setup.") && !label.starts_with("save.");
}

text::OrderedJson by_category(const ledger::CategoryBytes& bytes) {
  text::OrderedJson json = text::OrderedJson::object();
  for (size_t i = 0; i < bytes.size(); ++i) {
    json[std::string(name_of(static_cast<MemoryCategory>(i)))] = bytes[i];
  }
  return json;
}

void add_memory(text::OrderedJson& json, const RankPrediction& prediction,
                const RankMeasurements& facts) {
  json["predicted_peak_bytes"] = prediction.peak_bytes;
  json["measured_peak_bytes"] = facts.peak.bytes;
  json["predicted_peak_phase"] = prediction.peak_phase;
  json["measured_peak_phase"] = facts.peak_phase;
  json["predicted_bytes_by_category"] = by_category(bytes_by_category(prediction));
  json["measured_bytes_by_category"] = by_category(facts.peak.by_category);
  json["predicted_host_bytes"] = prediction.host_bytes;
  json["measured_host_bytes"] = facts.host_peak_bytes;
  json["process_peak_bytes"] = facts.resident_peak_bytes;
}

// One row of "wire": predicted and measured traffic of a label, op and group size.
struct WireRow {
  std::string label;
  mesh::CollectiveOp op;
  int64_t group_size = 0;
  int64_t predicted_calls = 0, measured_calls = 0;
  int64_t predicted_bytes = 0, measured_bytes = 0;
  int64_t most_bytes = 0;  // where tokens choose their ranks; 0: the prediction is certain
};

WireRow& row_for(std::vector<WireRow>& rows, const std::string& label, mesh::CollectiveOp op,
                 int64_t group_size) {
  for (WireRow& row : rows) {
    if (row.label == label && row.op == op && row.group_size == group_size) return row;
  }
  rows.push_back({label, op, group_size});
  return rows.back();
}

void add_wire(text::OrderedJson& json, const Plan& plan, int64_t steps,
              const RankMeasurements& facts) {
  std::vector<WireRow> rows;
  for (const layout::Traffic& planned : layout::step_traffic(plan, facts.rank)) {
    WireRow& row = row_for(rows, planned.label, planned.op, planned.group_size);
    row.predicted_calls += planned.calls * steps;
    row.predicted_bytes += planned.wire_bytes * steps;
    row.most_bytes += planned.most_wire_bytes * steps;
  }
  for (const comm::TrafficCount& counted : facts.traffic) {
    if (!is_planned(counted.label)) continue;
    WireRow& row = row_for(rows, counted.label, counted.op, counted.group_size);
    row.measured_calls += counted.calls;
    row.measured_bytes += counted.wire_bytes;
  }
  int64_t predicted = 0;
  int64_t measured = 0;
  text::OrderedJson wire = text::OrderedJson::array();
  for (const WireRow& row : rows) {
    predicted += row.predicted_bytes;
    measured += row.measured_bytes;
    wire.push_back({{"label", row.label},
                    {"op", name_of(row.op)},
                    {"group_size", row.group_size},
                    {"predicted_calls", row.predicted_calls},
                    {"measured_calls", row.measured_calls},
                    {"predicted_wire_bytes", row.predicted_bytes},
                    {"measured_wire_bytes", row.measured_bytes}});
    if (row.most_bytes > 0) wire.back()["predicted_most_wire_bytes"] = row.most_bytes;
  }
  json["predicted_wire_bytes"] = predicted;
  json["measured_wire_bytes"] = measured;
  json["wire"] = wire;
}

double idle_share(const RankMeasurements& facts) {
  const double all = facts.busy_s + facts.idle_s;
  return all > 0 ? facts.idle_s / all : 0;
}

}  // namespace

const RankPrediction& prediction_for(const Plan& plan, const mesh::Coord& coord) {
  for (const RankPrediction& prediction : plan.predictions.ranks) {
    if (prediction.stage == coord.pipeline && prediction.tensor == coord.tensor) return prediction;
  }
  throw ConfigError(
      fmt::format("the plan has no prediction for stage {}, tensor rank {}, which the run report "
                  "needs: make the plan again with smp-plan",
                  coord.pipeline, coord.tensor));
}

ledger::CategoryBytes bytes_by_category(const RankPrediction& prediction) {
  ledger::CategoryBytes bytes{};
  for (const MemoryTerm& term : prediction.terms) {
    bytes[static_cast<size_t>(term.category)] += term.bytes;
  }
  return bytes;
}

void add_traffic(std::vector<comm::TrafficCount>& all,
                 const std::vector<comm::TrafficCount>& group) {
  for (const comm::TrafficCount& row : group) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const comm::TrafficCount& other) {
      return other.label == row.label && other.op == row.op && other.group_size == row.group_size;
    });
    if (same == all.end()) {
      all.push_back(row);
    } else {
      same->calls += row.calls;
      same->wire_bytes += row.wire_bytes;
    }
  }
  std::sort(all.begin(), all.end(), [](const comm::TrafficCount& a, const comm::TrafficCount& b) {
    return std::tie(a.label, a.op, a.group_size) < std::tie(b.label, b.op, b.group_size);
  });
}

void subtract_traffic(std::vector<comm::TrafficCount>& all,
                      const std::vector<comm::TrafficCount>& part) {
  for (const comm::TrafficCount& row : part) {
    for (comm::TrafficCount& other : all) {
      if (other.label != row.label || other.op != row.op || other.group_size != row.group_size) {
        continue;
      }
      other.calls -= row.calls;
      other.wire_bytes -= row.wire_bytes;
    }
  }
  std::erase_if(all, [](const comm::TrafficCount& row) { return row.calls == 0; });
}

std::vector<RankMeasurements> gather_rank_measurements(const RankMeasurements& mine,
                                                       comm::Communicator& world) {
  const PackedMeasurements packed = pack(mine);
  std::vector<PackedMeasurements> all(static_cast<size_t>(world.size()));
  world
      .all_gather(&packed, all.data(), static_cast<int64_t>(sizeof packed / 8), DType::kI64,
                  "save.report")
      ->wait();
  std::vector<RankMeasurements> facts;
  for (const PackedMeasurements& one : all) facts.push_back(unpack(one));
  return facts;
}

std::string report_json(const Plan& plan, const RunMeasurements& run,
                        const std::vector<RankMeasurements>& ranks) {
  const mesh::Degrees& degrees = plan.degrees;
  text::OrderedJson json;
  json["job"] = plan.job.name;
  json["plan"] = {{"pipeline_parallel_degree", degrees.pipeline},
                  {"tensor_parallel_degree", degrees.tensor},
                  {"data_parallel_degree", degrees.data()},
                  {"sharded_data_parallel_degree", degrees.shard},
                  {"replica_degree", degrees.replica}};
  json["steps"] = run.steps;
  json["loss"] = {{"first", run.first_loss}, {"last", run.last_loss}};
  if (run.loss_scale) {
    json["loss_scale"] = {{"last", *run.loss_scale}, {"skipped_steps", run.skipped_steps}};
  }
  if (run.evaluation_loss) {
    json["evaluation"] = {{"loss", *run.evaluation_loss},
                          run.accuracy
                              ? text::OrderedJson{"accuracy", *run.accuracy}
                              : text::OrderedJson{"perplexity", std::exp(*run.evaluation_loss)},
                          {"samples", data::evaluation_samples(plan.job.training)}};
    if (run.best_step > 0) {
      json["evaluation"]["best"] = {{"loss", run.best_loss}, {"step", run.best_step}};
    }
  }
  if (run.ended_early) json["ended_early"] = *run.ended_early;
  if (run.cpu_products) {
    json["cpu_products"] = {{"onednn", run.cpu_products->onednn},
                            {"torch", run.cpu_products->torch}};
  }
  json["tokens_per_s"] = run.tokens_per_s;
  json["predicted_step_s"] = static_cast<double>(plan.predictions.step_ns) * 1e-9;
  json["measured_step_s"] = run.measured_step_s;
  if (const auto wait = layout::why_updates_wait(plan.job.training)) json["updates_wait"] = *wait;
  json["idle"] = text::OrderedJson::array();
  for (const RankMeasurements& facts : ranks) json["idle"].push_back(idle_share(facts));
  const mesh::Mesh mesh(degrees, plan.job.parallel.placement_strategy);
  json["ranks"] = text::OrderedJson::array();
  for (const RankMeasurements& facts : ranks) {
    const mesh::Coord coord = mesh.coord_of(facts.rank);
    text::OrderedJson rank;
    rank["rank"] = facts.rank;
    rank["coordinates"] = {{"pipeline", coord.pipeline},
                           {"tensor", coord.tensor},
                           {"shard", coord.shard},
                           {"replica", coord.replica}};
    rank["idle"] = idle_share(facts);
    add_memory(rank, prediction_for(plan, coord), facts);
    add_wire(rank, plan, run.steps, facts);
    json["ranks"].push_back(std::move(rank));
  }
  return json.dump(2) + "\n";
}

}  // namespace smp::record
