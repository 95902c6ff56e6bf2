#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/comm/net/exchange.h"
#include "tables.h"

// What the network between hosts costs, and which exchange is the quickest there for it.
namespace smp {

// Measured between the first ranks of the hosts, on which all ranks call this; the others get {}.
// Of two hosts a message behind another costs what it does by default.
net::NetworkCost measure_network(comm::Communicator& comm, const std::vector<BenchRank>& ranks,
                                 int samples);

// For a barrier, and for each size of an all_gather and an all_reduce between so many hosts: what
// each exchange takes on the network alone, and which is taken.
std::string exchange_table(int64_t hosts, int64_t ranks_per_host, const std::vector<int64_t>& sizes,
                           const net::ExchangeRule& rule);

}  // namespace smp
