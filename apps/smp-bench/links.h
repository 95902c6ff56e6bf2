#pragma once

#include <string>
#include <vector>

#include "measure.h"
#include "smp/comm/net/exchange.h"
#include "smp/plan/jobfile/job_reader.h"
#include "tables.h"

// What was measured, and the links of a cluster file: written into one, and predicted from one.
namespace smp {

// The cluster file with the results as its points; all are of kPointOps. Of several hosts also with
// what their network costs, of which each rank of a host has its share: the planner prices by it
// what no point reaches, and a run chooses its exchanges by it.
std::string with_links(const jobfile::JobSource& cluster, const std::vector<BenchResult>& results,
                       const std::vector<BenchRank>& ranks, const net::NetworkCost& network);

// A call's median error beyond which a prediction is no good.
inline constexpr double kMostLinkError = 0.15;

struct LinkComparison {
  std::string text;  // a line for each result and each call
  mesh::CollectiveOp worst_op = mesh::CollectiveOp::kAllReduce;
  double worst_error = 0;  // the largest of the calls' medians of |predicted / measured - 1|
};
// A round's calls beside the links that hold for it, lest two rounds of a machine that is now
// quick, now slow, are set beside each other: times are medians of the rounds, and so is their
// ratio.
struct LinkRound {
  ClusterSpec cluster;
  std::vector<BenchResult> results;  // the same calls in each round
};
LinkComparison compare_links(const std::vector<LinkRound>& rounds,
                             const std::vector<BenchRank>& ranks);

}  // namespace smp
