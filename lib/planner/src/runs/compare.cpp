#include "smp/planner/runs/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "smp/plan/base/errors.h"
#include "smp/plan/layout/traffic.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/units.h"

namespace smp::runs {
namespace {

std::string words(const mesh::Degrees& degrees) {
  return fmt::format("pipeline {} x tensor {} x shard {} x replica {}", degrees.pipeline,
                     degrees.tensor, degrees.shard, degrees.replica);
}

// What a report says of its ranks, each of which has one place in the plan.
void check_ranks(const Plan& plan, const RunReport& report) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  std::set<int64_t> seen;
  for (size_t i = 0; i < report.ranks.size(); ++i) {
    const MeasuredRank& rank = report.ranks[i];
    const std::string place = fmt::format("{}: ranks[{}]: rank {}", report.path, i, rank.rank);
    if (rank.rank >= plan.degrees.world())
      throw ConfigError(
          fmt::format("{}: the plan has ranks 0 to {}", place, plan.degrees.world() - 1));
    if (!seen.insert(rank.rank).second) throw ConfigError(place + ": appears twice");
    const mesh::Coord at = mesh.coord_of(rank.rank);
    if (at.pipeline != rank.stage || at.tensor != rank.tensor)
      throw ConfigError(fmt::format(
          "{} is stage {}, tensor rank {} in the report, but stage {}, tensor rank {} in the plan",
          place, rank.stage, rank.tensor, at.pipeline, at.tensor));
  }
}

const RankPrediction& prediction_of(const Plan& plan, const MeasuredRank& rank,
                                    const std::string& path) {
  for (const RankPrediction& prediction : plan.predictions.ranks) {
    if (prediction.stage == rank.stage && prediction.tensor == rank.tensor) return prediction;
  }
  throw ConfigError(
      fmt::format("{}: rank {} is stage {}, tensor rank {}, which the plan does not have", path,
                  rank.rank, rank.stage, rank.tensor));
}

Compared& row_for(std::vector<Compared>& rows, const std::string& name) {
  for (Compared& row : rows) {
    if (row.name == name) return row;
  }
  rows.push_back({name});
  return rows.back();
}

ComparedRank compare_rank(const Plan& plan, const RunReport& report, const MeasuredRank& measured) {
  const RankPrediction& predicted = prediction_of(plan, measured, report.path);
  ComparedRank rank;
  rank.rank = measured.rank;
  rank.peak = {"peak", double(predicted.peak_bytes), double(measured.peak_bytes)};
  rank.predicted_phase = predicted.peak_phase;
  rank.measured_phase = measured.peak_phase;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    int64_t bytes = 0;
    for (const MemoryTerm& term : predicted.terms) {
      if (term.category == category) bytes += term.bytes;
    }
    rank.categories.push_back({std::string(name_of(category)), double(bytes),
                               double(measured.by_category[static_cast<size_t>(i)])});
  }
  for (const layout::Traffic& traffic : layout::step_traffic(plan, measured.rank)) {
    row_for(rank.wire, traffic.label).predicted +=
        double(traffic.wire_bytes) * double(report.steps);
  }
  for (const MeasuredWire& wire : measured.wire) {
    row_for(rank.wire, wire.label).measured += double(wire.bytes);
  }
  return rank;
}

// Without a minus where it rounds to nothing.
std::string percent(double share) {
  const double tenths = std::round(share * 1000);
  return fmt::format("{:+.1f} %", tenths == 0 ? 0.0 : tenths / 10);
}

std::string limit_problem(const char* what, double error, double limit) {
  return fmt::format("{} is {:.1f} % off, more than {:.1f} %", what, error * 100, limit * 100);
}

text::OrderedJson json_of(const Compared& row) {
  return {{"name", row.name},
          {"predicted", row.predicted},
          {"measured", row.measured},
          {"error", row.error()}};
}

}  // namespace

double Compared::error() const {
  if (measured == 0) return predicted == 0 ? 0 : 1;
  return predicted / measured - 1;
}

double Comparison::worst_memory_error() const {
  double worst = 0;
  for (const ComparedRank& rank : ranks) worst = std::max(worst, std::abs(rank.peak.error()));
  return worst;
}

Comparison compare(const Plan& plan, const RunReport& report, const ComparisonLimits& limits) {
  const mesh::Degrees& ours = plan.degrees;
  const mesh::Degrees& theirs = report.degrees;
  if (ours.pipeline != theirs.pipeline || ours.tensor != theirs.tensor ||
      ours.shard != theirs.shard || ours.replica != theirs.replica) {
    throw ConfigError(fmt::format("{}: the run has {}, but the plan has {}", report.path,
                                  words(theirs), words(ours)));
  }
  check_ranks(plan, report);
  Comparison comparison;
  comparison.limits = limits;
  for (const MeasuredRank& rank : report.ranks) {
    comparison.ranks.push_back(compare_rank(plan, report, rank));
  }
  comparison.step = {"step", double(plan.predictions.step_ns) * 1e-9, report.step_s};
  if (limits.memory_error) {
    for (const ComparedRank& rank : comparison.ranks) {
      const double error = std::abs(rank.peak.error());
      if (error > *limits.memory_error) {
        comparison.problems.push_back(limit_problem(
            fmt::format("peak of rank {}", rank.rank).c_str(), error, *limits.memory_error));
      }
    }
  }
  const double time_error = std::abs(comparison.step.error());
  if (limits.time_error && comparison.step.predicted == 0) {
    comparison.problems.push_back(
        "step time cannot be compared: the plan has no prediction, as its cluster names no rates");
  } else if (limits.time_error && time_error > *limits.time_error) {
    comparison.problems.push_back(limit_problem("step time", time_error, *limits.time_error));
  }
  return comparison;
}

std::string comparison_text(const Comparison& comparison) {
  std::string text =
      fmt::format("{:<34} {:>12} {:>12} {:>9}\n", "", "predicted", "measured", "off");
  const auto line = [&](const std::string& name, const std::string& predicted,
                        const std::string& measured, const std::string& off) {
    text += fmt::format("{:<34} {:>12} {:>12} {:>9}\n", name, predicted, measured, off);
  };
  const auto add = [&](const std::string& name, const std::string& predicted,
                       const std::string& measured,
                       double error) { line(name, predicted, measured, percent(error)); };
  const auto bytes = [](double value) { return text::human_bytes(std::llround(value)); };
  const Compared& step = comparison.step;
  if (step.predicted == 0) {  // the cluster names no rates
    line("step time", "unknown", text::human_time(step.measured), "");
  } else {
    add("step time", text::human_time(step.predicted), text::human_time(step.measured),
        step.error());
  }
  for (const ComparedRank& rank : comparison.ranks) {
    const Compared& peak = rank.peak;
    add(fmt::format("rank {}: peak ({})", rank.rank, rank.predicted_phase), bytes(peak.predicted),
        bytes(peak.measured), peak.error());
    for (const Compared& row : rank.categories) {
      if (row.predicted == 0 && row.measured == 0) continue;
      add("  " + row.name, bytes(row.predicted), bytes(row.measured), row.error());
    }
    Compared wire{"wire"};
    for (const Compared& row : rank.wire) {
      wire.predicted += row.predicted;
      wire.measured += row.measured;
    }
    add("  on the wire", bytes(wire.predicted), bytes(wire.measured), wire.error());
    for (const Compared& row : rank.wire) {
      if (row.error() == 0) continue;  // only what differs
      add("    " + row.name, bytes(row.predicted), bytes(row.measured), row.error());
    }
  }
  for (const std::string& problem : comparison.problems) text += problem + "\n";
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  text::OrderedJson json;
  json["step_s"] = json_of(comparison.step);
  if (comparison.step.predicted == 0) {  // unknown
    json["step_s"]["predicted"] = nullptr;
    json["step_s"]["error"] = nullptr;
  }
  json["worst_memory_error"] = comparison.worst_memory_error();
  json["ranks"] = text::OrderedJson::array();
  for (const ComparedRank& rank : comparison.ranks) {
    text::OrderedJson one = {{"rank", rank.rank},
                             {"peak_bytes", json_of(rank.peak)},
                             {"predicted_phase", rank.predicted_phase},
                             {"measured_phase", rank.measured_phase},
                             {"bytes_by_category", text::OrderedJson::array()},
                             {"wire_bytes", text::OrderedJson::array()}};
    for (const Compared& row : rank.categories) one["bytes_by_category"].push_back(json_of(row));
    for (const Compared& row : rank.wire) one["wire_bytes"].push_back(json_of(row));
    json["ranks"].push_back(std::move(one));
  }
  json["problems"] = comparison.problems;
  return json.dump(2) + "\n";
}

}  // namespace smp::runs
