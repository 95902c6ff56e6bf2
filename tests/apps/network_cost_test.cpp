#include "network_cost.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "measure.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;

TEST_CASE("smp-bench sends to several ranks at once, and finds what each has sent") {
  for (const int peers : {1, 2, 3}) {
    CAPTURE(peers);
    run_ranks(4, [&](Communicator& comm) {
      BenchOptions options;
      options.samples = 1;
      const BenchCase sends{CollectiveOp::kSend, DType::kU8, ReduceOp::kSum, 300001, peers};
      BenchBuffers buffers(comm, options.is_symmetric);
      const BenchResult result = measure(comm, sends, options, buffers);
      CHECK(result.out_of_place->seconds > 0);
      CHECK(result.wrong() == 0);
      CHECK(!result.in_place);
    });
  }
}

TEST_CASE("the cost of a network is measured between the first ranks of its hosts") {
  for (const int hosts : {2, 3}) {
    CAPTURE(hosts);
    std::vector<BenchRank> ranks;
    for (int rank = 0; rank < hosts * 2; ++rank)
      ranks.push_back({"host", std::to_string(rank / 2), rank});
    run_ranks(hosts * 2, [&](Communicator& comm) {
      const net::NetworkCost cost = measure_network(comm, ranks, 1);
      if (comm.rank() % 2 == 1) return;  // takes no part
      CHECK(cost.hop_s > 0);
      if (hosts == 2) CHECK(cost.byte_s == cost.next_byte_s);  // to all is to the next
    });
  }
}
