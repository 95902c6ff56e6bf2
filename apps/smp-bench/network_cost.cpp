#include "network_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "measure.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/mesh/collective.h"

namespace smp {
namespace {

std::vector<int> first_of_each_host(const std::vector<BenchRank>& ranks) {
  std::set<std::string> seen;
  std::vector<int> first;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (seen.insert(ranks[rank].identity).second) first.push_back(int(rank));
  return first;
}

std::string line_of(const char* call, int64_t bytes, int64_t hosts, int64_t part,
                    const net::ExchangeRule& rule) {
  std::string line = fmt::format("  {:>14} {:>12}", call, bytes);
  for (const net::Exchange exchange : net::kExchanges)
    line += fmt::format(" {:>13.2f}", net::exchange_s(exchange, hosts, part, rule.network()) * 1e6);
  return line + fmt::format("  {}\n", name_of(rule.choice(hosts, part)));
}

}  // namespace

net::NetworkCost measure_network(comm::Communicator& comm, const std::vector<BenchRank>& ranks,
                                 int samples) {
  const std::vector<int> members = first_of_each_host(ranks);
  if (std::find(members.begin(), members.end(), comm.rank()) == members.end()) return {};
  const std::unique_ptr<comm::Communicator> group = comm.split(members);
  const auto hosts = static_cast<int64_t>(members.size());
  constexpr int64_t kLong = 4 << 20;
  // Parts of so many bytes to so many hosts at once, which send as many back: the same calls
  // whatever is measured, as what is copied inside a host is no network.
  BenchBuffers buffers(*group, true);
  const auto seconds = [&](int64_t bytes, int64_t peers) {
    BenchOptions options;
    options.samples = samples;
    const BenchCase what{mesh::CollectiveOp::kSend, DType::kU8, comm::ReduceOp::kSum, bytes,
                         int(peers)};
    return measure(*group, what, options, buffers).out_of_place->seconds;
  };
  net::NetworkCost cost;
  cost.hop_s = seconds(1, 1);
  // What parts of kLong take beyond parts of a byte, without what their messages take.
  const auto byte_s = [&](double byte_parts_s, int64_t peers) {
    const int64_t more_messages = peers * ((kLong - 1) / net::message_bytes(kLong));
    const double bytes_s =
        seconds(kLong, peers) - byte_parts_s - static_cast<double>(more_messages) * cost.message_s;
    return std::max(0.0, bytes_s) / static_cast<double>(peers * kLong);
  };
  if (hosts == 2) {  // all other hosts are the next one
    cost.byte_s = cost.next_byte_s = byte_s(cost.hop_s, 1);
    return cost;
  }
  const double to_all_s = seconds(1, hosts - 1);
  cost.message_s = std::max(0.0, to_all_s - cost.hop_s) / static_cast<double>(hosts - 2);
  cost.next_byte_s = byte_s(cost.hop_s, 1);
  cost.byte_s = byte_s(to_all_s, hosts - 1);
  return cost;
}

std::string exchange_table(int64_t hosts, int64_t ranks_per_host, const std::vector<int64_t>& sizes,
                           const net::ExchangeRule& rule) {
  const int64_t ranks = hosts * ranks_per_host;
  std::string table =
      fmt::format("# {}={}\n# {} hosts, {} ranks\n# {:>14} {:>12}", env::kFabricCost,
                  net::text_of(rule.network()), hosts, ranks, "call", "size (B)");
  for (const net::Exchange exchange : net::kExchanges)
    table += fmt::format(" {:>13}", fmt::format("{} (us)", name_of(exchange)));
  table += "  taken\n" + line_of("barrier", 0, hosts, 0, rule);
  for (const int64_t bytes : sizes)
    table += line_of("all_gather", bytes, hosts, bytes / ranks, rule);
  for (const int64_t bytes : sizes)
    if (bytes <= mesh::kOneShotBytes) table += line_of("all_reduce", bytes, hosts, bytes, rule);
  return table + "# longer all_reduces and all other calls: mesh\n";
}

}  // namespace smp
