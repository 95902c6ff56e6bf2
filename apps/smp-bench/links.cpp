#include "links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "smp/planner/calibration/nccl_tests.h"
#include "smp/planner/links/collective_seconds.h"

namespace smp {
namespace {

int64_t bytes_of(const BenchResult& result) {
  return result.count * bytes_of(result.measured.dtype);
}

// A broadcast is always in place.
double seconds_of(const BenchResult& result) {
  return (result.out_of_place ? result.out_of_place : result.in_place)->seconds;
}

// A call of less than an element for each rank moves nothing, and tells nothing of a link.
std::vector<BenchResult> moving(std::vector<BenchResult> results) {
  std::erase_if(results, [](const BenchResult& result) { return result.count == 0; });
  if (results.empty())
    throw std::runtime_error("every size is smaller than one element per rank: raise --to");
  return results;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// A file keeps what is unknown, or too little to be measured, as it has it.
std::vector<calibration::LinkConstant> constants_of(const net::NetworkCost& network, int64_t hosts,
                                                    int64_t ranks_per_host) {
  const std::string source =
      fmt::format("smp-bench collectives --calibrate, between {} hosts", hosts);
  std::vector<calibration::LinkConstant> constants = {
      {"inter_host_latency_s", network.hop_s, source}};
  if (hosts > 2 && network.message_s > 0)
    constants.push_back({"inter_host_message_s", network.message_s, source});
  const auto share = [&](double byte_s) { return 1 / (byte_s * double(ranks_per_host)); };
  if (network.byte_s > 0)
    constants.push_back({"inter_host_bytes_per_s", share(network.byte_s), source});
  if (hosts > 2 && network.next_byte_s > 0)
    constants.push_back({"inter_host_next_bytes_per_s", share(network.next_byte_s), source});
  return constants;
}

}  // namespace

std::string with_links(const jobfile::JobSource& cluster, const std::vector<BenchResult>& results,
                       const std::vector<BenchRank>& ranks, const net::NetworkCost& network) {
  calibration::NcclTable table;
  table.path = "smp-bench";
  table.source = "smp-bench collectives --calibrate, out of place";
  table.ranks = int64_t(ranks.size());
  table.hosts = hosts_among(ranks);
  for (const BenchResult& result : moving(results)) {
    table.points.push_back({table.ranks, bytes_of(result), seconds_of(result), result.measured.op});
  }
  const std::string text = calibration::with_link_points(cluster, {table});
  return table.hosts == 1 ? text
                          : calibration::with_link_constants(
                                {cluster.path, text},
                                constants_of(network, table.hosts, table.ranks / table.hosts));
}

LinkComparison compare_links(const std::vector<LinkRound>& rounds,
                             const std::vector<BenchRank>& ranks) {
  LinkComparison comparison;
  comparison.text = fmt::format("# Predicted from {}\n# {:>14} {:>12} {:>14} {:>14} {:>9}\n",
                                rounds.at(0).cluster.name, "call", "size (B)", "predicted (us)",
                                "measured (us)", "ratio");
  std::vector<std::vector<BenchResult>> results;
  for (const LinkRound& round : rounds) results.push_back(moving(round.results));
  std::map<mesh::CollectiveOp, std::vector<double>> errors;
  for (size_t at = 0; at < results[0].size(); ++at) {
    const mesh::CollectiveOp op = results[0][at].measured.op;
    const int64_t bytes = bytes_of(results[0][at]);
    std::vector<double> predicted, measured, ratios;
    for (size_t round = 0; round < rounds.size(); ++round) {
      predicted.push_back(links::collective_seconds(op, double(bytes), int64_t(ranks.size()),
                                                    hosts_among(ranks), rounds[round].cluster));
      measured.push_back(seconds_of(results[round][at]));
      ratios.push_back(predicted.back() / measured.back());
    }
    const double ratio = median(ratios);
    comparison.text += fmt::format("  {:>14} {:>12} {:>14.2f} {:>14.2f} {:>9.3f}\n", call_name(op),
                                   bytes, median(predicted) * 1e6, median(measured) * 1e6, ratio);
    errors[op].push_back(std::abs(ratio - 1));
  }
  for (const auto& [op, values] : errors) {
    const double error = median(values);
    comparison.text += fmt::format("# {}: median error {:.1f} %\n", call_name(op), error * 100);
    if (error < comparison.worst_error) continue;
    comparison.worst_error = error;
    comparison.worst_op = op;
  }
  return comparison;
}

}  // namespace smp
