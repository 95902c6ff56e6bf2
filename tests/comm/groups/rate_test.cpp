#include <doctest/doctest.h>
#include <fmt/format.h>

#include <mutex>
#include <string>
#include <vector>

#include "comm/any_call.h"
#include "comm/fake_network.h"
#include "comm/on_paths.h"
#include "comm/processes.h"
#include "net/ofi_transport.h"

// What limits the traffic between hosts (T8): never more bytes on their way than the window, and no
// message for which its receiver has given no credit, as the ports of all ranks count.
using namespace smp;
using namespace smp::comm;
using namespace smp::mesh;
using namespace smp::net;
using namespace smp::testing;

namespace {

// Every operation, short and long, and more messages at once than there are credits and room.
void load(Communicator& comm) {
  for (const CollectiveOp op : kOps)
    for (const int64_t count : {100, 20000, 300000}) {
      AnyCall call;
      call.op = op, call.count = count;
      if (wrong_elements(comm, call) != 0) throw std::logic_error("wrong: " + text_of(call));
    }
  constexpr int kMessages = 12;
  constexpr int64_t kShort = 30000, kLong = 400000;  // one message each, or straight
  const std::vector<std::byte> out(kLong);
  std::vector<std::vector<std::byte>> in;
  std::vector<WorkPtr> works;
  for (const bool sends : {true, false})
    for (int i = 0; i < kMessages; ++i)
      for (int peer = 0; peer < comm.size(); ++peer) {
        if (peer == comm.rank()) continue;
        const int64_t bytes = i % 2 == 0 ? kShort : kLong;
        if (!sends) in.emplace_back(static_cast<size_t>(bytes));
        works.push_back(sends ? comm.send(out.data(), bytes, DType::kU8, peer, "m")
                              : comm.recv(in.back().data(), bytes, DType::kU8, peer, "m"));
      }
  for (const WorkPtr& work : works) work->wait();
}

// What the ports of four ranks on two hosts count; "good" if no limit was passed.
std::string counted_under_load(HostsOptions options) {
  std::mutex mutex;
  std::string wrong;
  int ports = 0;
  options.counted = [&](const net::NetworkEndpoint::Counts& counts) {
    std::lock_guard guard(mutex);
    ++ports;
    if (counts.unexpected != 0) wrong += fmt::format("{} came unexpected\n", counts.unexpected);
    if (counts.most_in_flight > kWindowBytes)
      wrong += fmt::format("{} bytes were in flight\n", counts.most_in_flight);
    if (counts.messages == 0 || counts.most_in_flight < kMessageBytes)
      wrong += fmt::format("{} messages, {} bytes: that was no load\n", counts.messages,
                           counts.most_in_flight);
  };
  run_hosts(
      2, 2, [](Communicator& comm) { load(comm); }, options);
  if (ports != 4) wrong += fmt::format("{} ports have counted", ports);
  return wrong.empty() ? "good" : wrong;
}

}  // namespace

TEST_CASE("the bytes in flight stay within the window, and nothing comes unexpected" *
          doctest::test_suite("by writes")) {
  NetworkFaults none, mixed, slow;
  mixed.delay_polls = 10, mixed.reorder = true, mixed.refuse = 0.3, mixed.at_once = 2;
  slow.slow_rank = 1;
  for (const NetworkFaults& faults : {none, mixed, slow}) {
    HostsOptions options;
    options.faults = faults;
    CHECK(counted_under_load(options) == "good");
  }
}

TEST_CASE("over libfabric the bytes in flight stay within the window, none comes unexpected") {
  if (!is_here(Path::kBetweenHosts)) return;
  struct Case {
    const char* provider;
    FabricProtocol protocol;
  };
  for (const Case& c : {Case{"net", FabricProtocol::kTagged}, Case{"net", FabricProtocol::kWrite},
                        Case{"tcp;ofi_rxm", FabricProtocol::kWrite}}) {
    if (!network_provider().empty() && network_provider() != c.provider) continue;
    CAPTURE(c.provider);
    Child child([&] {
      HostsOptions options;
      options.end = [&] {
        return net::open_ofi_transport("127.0.0.1", c.provider, c.protocol, 0).transport;
      };
      return counted_under_load(options);
    });
    CHECK(child.join().said == "good");
  }
}
