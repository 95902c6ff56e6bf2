#include "tables.h"

#include <fmt/format.h>

#include <set>

#include "smp/plan/text/json.h"

namespace smp {
namespace {

std::string columns(const BenchResult& result, const std::optional<BenchTime>& time, int ranks) {
  if (!time) return fmt::format("{:>9} {:>7} {:>7} {:>7}", "N/A", "N/A", "N/A", "N/A");
  const double rate = algorithm_bytes_per_s(result, time->seconds) / kGiga;
  return fmt::format("{:>9.2f} {:>7.2f} {:>7.2f} {:>7}", time->seconds * 1e6, rate,
                     rate * bus_factor(result.measured.op, ranks),
                     time->wrong ? std::to_string(*time->wrong) : "N/A");
}

// As nccl-tests spell them.
std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float";
    case DType::kF64: return "double";
    case DType::kF16: return "half";
    case DType::kBF16: return "bfloat16";
    default: return name_of(dtype);
  }
}

std::string reduction_of(const BenchResult& result) {
  if (!has_reduction(result.measured.op)) return "none";
  switch (result.measured.reduction) {
    case comm::ReduceOp::kProduct: return "prod";
    case comm::ReduceOp::kAverage: return "avg";
    default: return std::string(name_of(result.measured.reduction));
  }
}

}  // namespace

std::string_view call_name(mesh::CollectiveOp op) {
  return op == mesh::CollectiveOp::kSend ? "sendrecv" : name_of(op);
}

int64_t hosts_among(const std::vector<BenchRank>& ranks) {
  std::set<std::string> hosts;
  for (const BenchRank& rank : ranks) hosts.insert(rank.identity);
  return int64_t(hosts.size());
}

std::string table_head(mesh::CollectiveOp op, const std::vector<BenchRank>& ranks) {
  std::string text =
      fmt::format("# Collective test starting: {}_perf\n# Using devices\n", call_name(op));
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    text += fmt::format("#  Rank {:>2} Group  0 Pid {:>6} on {:>10} device  0 [0x00] CPU\n", rank,
                        ranks[rank].process, ranks[rank].host);
  const char* const four = "{:>9} {:>7} {:>7} {:>7}";
  text += fmt::format("#\n#{:>62}{:>35}\n", "out-of-place", "in-place");
  text +=
      fmt::format("# {:>10} {:>12} {:>8} {:>6} {:>5} ", "size", "count", "type", "redop", "root");
  for (int i = 0; i < 2; ++i)
    text += fmt::format(fmt::runtime(four), "time", "algbw", "busbw", "#wrong") +
            (i == 0 ? "  " : "\n");
  text += fmt::format("# {:>10} {:>12} {:>8} {:>6} {:>5} ", "(B)", "(elements)", "", "", "");
  for (int i = 0; i < 2; ++i)
    text +=
        fmt::format(fmt::runtime(four), "(us)", "(GB/s)", "(GB/s)", "") + (i == 0 ? "  " : "\n");
  return text;
}

std::string table_line(const BenchResult& result, int ranks) {
  const BenchCase& measured = result.measured;
  const bool rooted =
      measured.op == mesh::CollectiveOp::kBroadcast || measured.op == mesh::CollectiveOp::kReduce ||
      measured.op == mesh::CollectiveOp::kGather || measured.op == mesh::CollectiveOp::kScatter;
  return fmt::format(
      "  {:>10} {:>12} {:>8} {:>6} {:>5} {}  {}\n", result.count * bytes_of(measured.dtype),
      result.count, type_name(measured.dtype), reduction_of(result), rooted ? 0 : -1,
      columns(result, result.out_of_place, ranks), columns(result, result.in_place, ranks));
}

std::string as_json(const std::vector<BenchResult>& results, const std::vector<BenchRank>& ranks,
                    const BenchOptions& options) {
  text::OrderedJson document;
  document["ranks"] = ranks.size();
  document["hosts"] = hosts_among(ranks);
  document["memory"] = options.is_symmetric ? "symmetric" : "private";
  document["dirty"] = options.is_dirty;
  document["results"] = text::OrderedJson::array();
  for (const BenchResult& result : results) {
    text::OrderedJson row;
    row["op"] = call_name(result.measured.op);
    row["dtype"] = name_of(result.measured.dtype);
    if (has_reduction(result.measured.op)) row["reduction"] = name_of(result.measured.reduction);
    row["bytes"] = result.count * bytes_of(result.measured.dtype);
    const auto add = [&](const char* place, const std::optional<BenchTime>& time) {
      if (!time) return;
      const double rate = algorithm_bytes_per_s(result, time->seconds);
      row[place] = {{"seconds", time->seconds},
                    {"algorithm_bytes_per_s", rate},
                    {"bus_bytes_per_s", rate * bus_factor(result.measured.op, int(ranks.size()))}};
      if (time->wrong) row[place]["wrong"] = *time->wrong;
    };
    add("out_of_place", result.out_of_place);
    add("in_place", result.in_place);
    document["results"].push_back(std::move(row));
  }
  return document.dump(2) + "\n";
}

}  // namespace smp
