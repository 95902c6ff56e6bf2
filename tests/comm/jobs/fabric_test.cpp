#include "smp/comm/jobs/fabric.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/fabric_ranks.h"
#include "comm/processes.h"
#include "comm/times.h"
#include "held_port.h"
#include "net/fabric_protocol.h"
#include "smp/comm/jobs/job_environment.h"
#include "smp/plan/base/errors.h"
#include "smp/rendezvous/sockets/tcp_socket.h"

// Of ranks of several hosts: how they find each other, by what they talk, and what they refuse.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::net;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

std::string sums(Communicator& comm) {
  const int size = comm.size();
  for (const int64_t count : {int64_t{1}, int64_t{5000}, int64_t{1} << 20}) {
    std::vector<float> x(static_cast<size_t>(count), float(comm.rank() + 1));
    comm.all_reduce(x.data(), x.data(), count, DType::kF32, ReduceOp::kSum, "x")->wait();
    if (x.front() != float(size * (size + 1) / 2) || x.back() != x.front()) return "wrong sum";
    std::vector<float> all(size_t(count * size));
    x.assign(x.size(), float(comm.rank()));
    comm.all_gather(x.data(), all.data(), count, DType::kF32, "g")->wait();
    for (int r = 0; r < size; ++r)
      if (all[size_t((r + 1) * count - 1)] != float(r)) return "wrong gather";
    comm.reduce_scatter(all.data(), x.data(), count * size, DType::kF32, ReduceOp::kSum, "s")
        ->wait();
    if (x.back() != float(comm.rank() * size)) return "wrong part";
    const WorkPtr out = comm.send(x.data(), count, DType::kF32, (comm.rank() + 1) % size, "m");
    comm.recv(all.data(), count, DType::kF32, (comm.rank() + size - 1) % size, "m")->wait();
    out->wait();
  }
  comm.barrier("end")->wait();
  return "good";
}

}  // namespace

TEST_CASE("ranks of several hosts meet and talk over libfabric") {
  if (!has_network()) return;
  for (const std::string& provider : network_providers({"", "tcp;ofi_rxm"}))
    for (const auto& [size, per_host] : {std::pair{2, 1}, {4, 2}, {3, 1}}) {
      auto children =
          start(size, per_host, sums, [&](FabricOptions& options) { options.provider = provider; });
      CAPTURE(provider);
      for (const std::string& said : join(children)) CHECK(said == "good");
    }
}

TEST_CASE("a rank that waits for another host sleeps, and is woken by a message or an abort") {
  if (!has_network()) return;
  for (const std::string& provider : network_providers({"", "tcp;ofi_rxm"})) {
    auto children = start(
        4, 2,
        [&](Communicator& comm) -> std::string {
          const auto all = comm.split({0, 1, 2, 3});
          all->barrier("start")->wait();
          if (comm.rank() == 3) std::this_thread::sleep_for(milliseconds(1000));
          rusage before{}, after{};
          getrusage(RUSAGE_SELF, &before);
          all->barrier("late")->wait();
          getrusage(RUSAGE_SELF, &after);
          std::string said = "good";
          const auto cpu_ms = (after.ru_utime.tv_sec - before.ru_utime.tv_sec +
                               after.ru_stime.tv_sec - before.ru_stime.tv_sec) *
                                  1000 +
                              (after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                               after.ru_stime.tv_usec - before.ru_stime.tv_usec) /
                                  1000;
          // A nap of 100 us would be 10,000 of them.
          const auto naps = can_be_slept_at(provider) ? after.ru_nvcsw - before.ru_nvcsw : 0;
          if (cpu_ms > 300 || naps > 4000)
            said = fmt::format("{} ms of CPU, {} naps", cpu_ms, naps);
          comm.barrier("all are out")->wait();
          if (comm.rank() == 3) all->abort("enough");
          const auto begin = std::chrono::steady_clock::now();
          try {
            all->barrier("never")->wait();
          } catch (const CommError&) {
          }
          if (std::chrono::steady_clock::now() - begin > kSoon) said = "woken late";
          comm.barrier("end")->wait();
          return said;
        },
        [&](FabricOptions& options) { options.provider = provider; });
    CAPTURE(provider);
    for (const std::string& said : join(children)) CHECK(said == "good");
  }
}

// Naps of 20 ms would hide that a rank is not woken: so its answers are timed, until the machine
// is quiet enough to show it.
TEST_CASE("ranks that sleep beside the network are woken by each message, also a neighbour's") {
  if (!has_network()) return;
  auto children = start(3, 2, [](Communicator& comm) -> std::string {
    constexpr int kRounds = 25;
    constexpr milliseconds kPause{2};
    constexpr double kLimitMs = 10;
    std::string said = "good";
    for (const int peer : {1, 2}) {  // on rank 0's host, and on another
      const auto start = std::chrono::steady_clock::now();
      for (bool again = true; again;) {
        std::vector<double> took;
        float x = 0;
        for (int round = 0; round < kRounds; ++round) {
          if (comm.rank() == 0) {
            const auto begin = std::chrono::steady_clock::now();
            comm.send(&x, 1, DType::kF32, peer, "ping")->wait();
            comm.recv(&x, 1, DType::kF32, peer, "pong")->wait();
            took.push_back(milliseconds_since(begin));
          } else if (comm.rank() == peer) {
            comm.recv(&x, 1, DType::kF32, 0, "ping")->wait();
            std::this_thread::sleep_for(kPause);
            comm.send(&x, 1, DType::kF32, 0, "pong")->wait();
          }
        }
        int32_t late = comm.rank() == 0 && median(took) > kLimitMs;
        if (late != 0 && std::chrono::steady_clock::now() - start > kSoon) {
          said = fmt::format("rank {} answered in {} ms", peer, median(took));
          late = 0;
        }
        comm.broadcast(&late, 1, DType::kI32, 0, "again")->wait();
        again = late != 0;
      }
    }
    return said;
  });
  for (const std::string& said : join(children)) CHECK(said == "good");
}

TEST_CASE("the network is named in one line, with what it was preferred to") {
  std::string line;
  const HeldPort port;
  FabricOptions options = options_of(0, 1, 1, fresh_job_id(), port.number());
  options.report = [&line](const std::string& text) { line = text; };
  options.subnet = "127.0.0.0/8";
  Child child([&] {
    connect_fabric(options);
    return line;
  });
  const std::string said = child.join().said;
  CHECK(said.find("between hosts: provider ") == 0);
  CHECK(said.find(network_provider() == "shm"
                      ? " at the addresses of the provider (the rendezvous is at 127.0.0.1, in "
                        "127.0.0.0/8); "
                        "protocol "
                      : " at 127.0.0.1 (in 127.0.0.0/8); protocol ") != std::string::npos);
  CHECK(said.find("; exchange by smp's own costs (5.4e-06,3.8e-06,0,0)") != std::string::npos);
  CHECK(said.ends_with("; provider shm is for tests only: a rank that dies or stops can hold a "
                       "lock of libfabric, and the other ranks then wait forever") ==
        (network_provider() == "shm"));
}

TEST_CASE("rank 0 tells at which free port it waits, but not of the job that shrink() makes") {
  if (!has_network()) return;
  std::vector<int> ports;
  FabricOptions options = options_of(0, 1, 1, fresh_job_id(), 0);
  options.listening = [&ports](int port) { ports.push_back(port); };
  Child child([&] {
    const auto world = connect_fabric(options);
    world->abort("enough");
    const Survivors rest = world->shrink(std::chrono::milliseconds(6000));
    rest.world->barrier("all")->wait();
    return fmt::format("{} call, {}", ports.size(), ports.front() > 0 ? "a port" : "no port");
  });
  CHECK(child.join().said == "1 call, a port");
}

TEST_CASE("the protocol is as SMP_FABRIC_PROTOCOL says, or the provider's faster one") {
  struct Case {
    const char *provider, *said, *says;
  };
  for (const Case& c :
       {Case{"net", "", "; protocol write (the faster protocol of net)"},
        {"net", "tagged", "; protocol tagged (as SMP_FABRIC_PROTOCOL says)"},
        {"tcp;ofi_rxm", "", "; protocol write (the faster protocol of tcp;ofi_rxm)"},
        {"net", "write", "; protocol write (as SMP_FABRIC_PROTOCOL says)"},
        {"tcp;ofi_rxm", "tagged", "; protocol tagged (as SMP_FABRIC_PROTOCOL says)"}}) {
    Child child([&c] {
      setenv("SMP_FABRIC_PROTOCOL", c.said, 1);
      const HeldPort port;
      std::string line;
      FabricOptions options = options_of(0, 1, 1, fresh_job_id(), port.number());
      options.provider = c.provider;
      options.report = [&line](const std::string& text) { line = text; };
      connect_fabric(options);
      return line;
    });
    CAPTURE(c.said);
    const std::string said = child.join().said;
    CAPTURE(said);
    CHECK(said.find(c.says) != std::string::npos);
  }
  Child child([] {
    setenv("SMP_FABRIC_PROTOCOL", "rma", 1);
    read_fabric_protocol();
    return std::string();
  });
  CHECK(child.join().said == "exception: SMP_FABRIC_PROTOCOL=rma: expected tagged or write");
}

TEST_CASE("a provider that cannot write is taken without, unless writes are what is wanted") {
  auto open = [](const std::string& provider, std::optional<FabricProtocol> wanted,
                 std::optional<std::string> no_writes, std::optional<std::string> no_messages) {
    return net::open_by_protocol(provider, wanted,
                                 [&](bool writes) { return writes ? no_writes : no_messages; });
  };
  const std::string none = "No data available";
  CHECK(open("tcp;ofi_rxm", {}, none, {}) ==
        "tcp;ofi_rxm does not support writes: No data available");
  CHECK(open("udp", {}, none, {}) == "the usual protocol of udp");
  CHECK(open("udp", FabricProtocol::kTagged, none, {}) == "as SMP_FABRIC_PROTOCOL says");
  CHECK_THROWS_WITH_AS(open("udp", FabricProtocol::kWrite, none, {}),
                       "SMP_FABRIC_PROTOCOL=write: provider udp does not support writes with a "
                       "completion at the peer (FI_RMA, FI_REMOTE_CQ_DATA): No data available",
                       ConfigError);
  for (const std::optional<FabricProtocol> wanted :
       {std::optional<FabricProtocol>(), std::optional(FabricProtocol::kWrite),
        std::optional(FabricProtocol::kTagged)})
    for (const char* provider : {"tcp;ofi_rxm", "udp"})
      CHECK(open(provider, wanted, none, none) == std::nullopt);
}

TEST_CASE("a provider that smp does not know, or that is not here, is an error that says so") {
  for (const char* provider : {"sockets", "efa"}) {
    auto children = start(1, 1, sums, [&](FabricOptions& o) { o.provider = provider; });
    const std::string said = join(children)[0];
    if (std::string(provider) == "sockets")
      CHECK(said ==
            "exception: SMP_FABRIC_PROVIDER=sockets: expected one of efa, verbs;ofi_rxm, tcp, net, "
            "tcp;ofi_rxm, shm");
    else if (said != "good")  // there are machines with EFA
      CHECK(said.find("found no usable network at 127.0.0.1 (efa: ") != std::string::npos);
  }
}

TEST_CASE("strangers are refused, and ranks that were told different things are named") {
  auto wrong_key = start(2, 1, sums, [](FabricOptions& options) {
    if (options.rank == 0) options.timeout = milliseconds(6000);
    if (options.rank == 1) options.job_key = "another key";
  });
  const auto keys = join(wrong_key);
  CHECK(keys[0].find("timeout 1: rank 0: rank 1 of job '") == 0);
  CHECK(keys[0].find(" within 6 s; 1 connection was rejected (1 from 127.0.0.1)") !=
        std::string::npos);
  CHECK(keys[1].find("mismatch 1: rank 1: rank 0 of job '") == 0);
  CHECK(keys[1].find("has another job key") != std::string::npos);

  auto providers = start(3, 1, sums, [](FabricOptions& options) {
    if (options.rank == 2) options.provider = "tcp;ofi_rxm";
    if (options.rank != 2) options.provider = "net";
    options.protocol = FabricProtocol::kTagged;
  });
  for (const std::string& said : join(providers)) {
    CHECK(said.find("mismatch 2: ") == 0);
    CHECK(said.find("has provider tcp;ofi_rxm, protocol tagged, messages of 131072 bytes, 4 "
                    "credits, exchange ") != std::string::npos);
    CHECK(said.find(", but rank 0 has provider net, protocol tagged") != std::string::npos);
  }

  auto protocols = start(2, 1, sums, [](FabricOptions& options) {
    options.provider = "net";
    options.protocol = options.rank == 1 ? FabricProtocol::kWrite : FabricProtocol::kTagged;
  });
  for (const std::string& said : join(protocols)) {
    CHECK(said.find("mismatch 1: ") == 0);
    CHECK(said.find("has provider net, protocol write, messages") != std::string::npos);
    CHECK(said.find("but rank 0 has provider net, protocol tagged") != std::string::npos);
  }

  auto exchanges = start(3, 1, sums, [](FabricOptions& options) {
    if (options.rank == 2) options.exchange.pinned = Exchange::kRing;
  });
  for (const std::string& said : join(exchanges)) {
    CHECK(said.find("mismatch 2: ") == 0);
    CHECK(said.find("4 credits, exchange ring, but rank 0 has ") != std::string::npos);
    CHECK(said.find("4 credits, exchange by " + text_of(NetworkCost())) != std::string::npos);
  }

  auto sizes = start(2, 1, sums, [](FabricOptions& options) {
    if (options.rank == 1) options.size = 3;
  });
  CHECK(sizes[1].join().said == "mismatch 0: rank 1: this job has 3 ranks, but rank 0 was told 2");
  kill(sizes[0].pid(), SIGKILL);
  sizes[0].join();
}
