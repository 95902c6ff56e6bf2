#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "comm/fabric_ranks.h"
#include "comm/on_paths.h"

// Of the calls of ranks of several hosts, by whatever libfabric they talk: SMP_FABRIC_PROVIDER.
using namespace smp;
using namespace smp::comm;
using namespace smp::testing;

TEST_CASE("over libfabric: calls that do not match end all ranks with both descriptions") {
  if (!has_network()) return;
  for (const char* call : {"all_reduce", "all_gather", "scatter"}) {
    auto ranks = start(3, 1, [&](Communicator& comm) -> std::string {
      std::vector<float> in(size_t(kCount * 3)), out(in.size());
      comm.barrier("start")->wait();
      make(call, comm, in.data(), out.data(), kCount - (comm.rank() == 2 ? 8 : 0));
      comm.barrier("end")->wait();
      return "nothing";
    });
    const auto all = join(ranks);
    for (const std::string& said : all) {
      CHECK(said.starts_with("mismatch "));
      CHECK(said.find(fmt::format(": {} #2 'x' of ", call)) != std::string::npos);
      CHECK(said.find(" does not match rank ") != std::string::npos);
    }
  }
}
