#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "measure.h"

namespace smp {

constexpr double kGiga = 1e9;  // of GB/s

// Where each rank runs, in rank order.
struct BenchRank {
  std::string host;      // its name, for people
  std::string identity;  // what makes two ranks share a host: names may be the same
  int64_t process = 0;
};

// What nccl-tests print, which its readers understand, `smp-plan import nccl-tests` too: the head
// with the ranks and the columns' names, then a line for each result.
std::string_view call_name(mesh::CollectiveOp op);  // all_reduce, ..., sendrecv
std::string table_head(mesh::CollectiveOp op, const std::vector<BenchRank>& ranks);
std::string table_line(const BenchResult& result, int ranks);

// All results as one JSON document.
std::string as_json(const std::vector<BenchResult>& results, const std::vector<BenchRank>& ranks,
                    const BenchOptions& options);

int64_t hosts_among(const std::vector<BenchRank>& ranks);

}  // namespace smp
