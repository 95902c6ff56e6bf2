#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/network.h"
#include "comm/processes.h"
#include "comm/times.h"
#include "held_port.h"
#include "smp/comm/jobs/fabric.h"
#include "smp/comm/jobs/job_environment.h"

// Real processes and libfabric over the loopback interface; the ranks are told that they are on
// several hosts.
namespace smp::testing {

inline net::FabricOptions options_of(int rank, int size, int per_host, const std::string& job_id,
                                     int port) {
  net::FabricOptions options;
  options.rank = rank;
  options.size = size;
  options.job_id = job_id;
  options.job_key = "the key of the tests";
  options.timeout = kNever;
  options.master_address = "127.0.0.1";
  options.master_port = port;
  options.host_identity = fmt::format("host {}", rank / per_host);
  options.provider = network_provider();
  options.protocol = jobs::read_fabric_protocol();
  return options;
}

using FabricChange = std::function<void(net::FabricOptions&)>;

struct FabricRanks {
  std::unique_ptr<HeldPort> port = std::make_unique<HeldPort>();
  std::vector<Child> children;
  Child& operator[](int rank) { return children[size_t(rank)]; }
};

inline FabricRanks start(
    int size, int per_host, const RankProgram& program,
    const FabricChange& change = [](net::FabricOptions&) {}) {
  const std::string job_id = fresh_job_id();
  FabricRanks ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.children.emplace_back([=, port = ranks.port->number()] {
      net::FabricOptions options = options_of(rank, size, per_host, job_id, port);
      change(options);
      const auto world = jobs::connect_fabric(options);
      return program(*world);
    });
  return ranks;
}

inline std::vector<std::string> join(FabricRanks& ranks) {
  std::vector<std::string> said;
  for (Child& child : ranks.children) said.push_back(child.join().said);
  return said;
}

}  // namespace smp::testing
