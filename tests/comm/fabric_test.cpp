#include "smp/comm/fabric.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "comm/values.h"
#include "tcp_socket.h"

// Real processes and libfabric over the loopback interface; the ranks are told that they are on
// several hosts.
using namespace smp;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

FabricOptions options_of(int rank, int size, int per_host, const std::string& job_id, int port) {
  FabricOptions options;
  options.rank = rank;
  options.size = size;
  options.job_id = job_id;
  options.job_key = "the key of the tests";
  options.timeout = milliseconds(60000);
  options.master_address = "127.0.0.1";
  options.master_port = port;
  options.host_identity = fmt::format("host {}", rank / per_host);
  return options;
}

using Change = std::function<void(FabricOptions&)>;

std::vector<Child> start(
    int size, int per_host, const RankProgram& program,
    const Change& change = [](FabricOptions&) {}) {
  const std::string job_id = fresh_job_id();
  const int port = free_port();
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank)
    children.emplace_back([=] {
      FabricOptions options = options_of(rank, size, per_host, job_id, port);
      change(options);
      const auto world = connect_fabric(options);
      return program(*world);
    });
  return children;
}

std::vector<std::string> join(std::vector<Child>& children) {
  std::vector<std::string> said;
  for (Child& child : children) said.push_back(child.join().said);
  return said;
}

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

// Ranks that call until something ends them, and how many of them are at it: in memory that the
// processes share.
class Endless {
 public:
  Endless()
      : running_(new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0)) std::atomic<int>(0)) {}
  ~Endless() { munmap(running_, 4096); }

  RankProgram program() const {
    return [running = running_](Communicator& comm) -> std::string {
      std::vector<float> x(100000);
      for (bool first = true;; first = false) {
        comm.all_reduce(x.data(), x.data(), 100000, DType::kF32, ReduceOp::kSum, "x")->wait();
        if (first) running->fetch_add(1);
      }
    };
  }
  void wait_for(int ranks) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (running_->load() < ranks && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(10));
    REQUIRE(running_->load() == ranks);
  }

 private:
  std::atomic<int>* const running_;
};

bool has_network() {
  const char* provider = std::getenv("SMP_FABRIC_PROVIDER");
  if (provider == nullptr || std::string(provider) != "none") return true;
  MESSAGE("skipped: SMP_FABRIC_PROVIDER is none");
  return false;
}

}  // namespace

TEST_CASE("ranks of several hosts meet and talk over libfabric") {
  if (!has_network()) return;
  struct Case {
    int size, per_host;
    const char* provider;
  };
  for (const Case& c : {Case{2, 1, ""}, Case{4, 2, ""}, Case{3, 1, "tcp;ofi_rxm"}}) {
    auto children = start(c.size, c.per_host, sums,
                          [&](FabricOptions& options) { options.provider = c.provider; });
    CAPTURE(c.provider);
    for (const std::string& said : join(children)) CHECK(said == "good");
  }
}

TEST_CASE("the network is named in one line, with what it was preferred to") {
  std::string line;
  FabricOptions options = options_of(0, 1, 1, fresh_job_id(), free_port());
  options.report = [&line](const std::string& text) { line = text; };
  options.subnet = "127.0.0.0/8";
  Child child([&] {
    connect_fabric(options);
    return line;
  });
  const std::string said = child.join().said;
  CHECK(said.find("between hosts: provider ") == 0);
  CHECK(said.find(" at 127.0.0.1 (in 127.0.0.0/8)") != std::string::npos);
}

TEST_CASE("a subnet rule finds this host's address, or says which it has") {
  CHECK(shm::address_in("127.0.0.0/8") == "127.0.0.1");
  CHECK_THROWS_WITH_AS(
      shm::address_in("10.0.0.0"),
      "'10.0.0.0' is no network: an address, a slash and a number of bits, as in 10.0.0.0/16",
      std::runtime_error);
  try {
    shm::address_in("203.0.113.0/24");
    CHECK(false);
  } catch (const std::runtime_error& e) {
    CHECK(std::string(e.what()).find("this host has no address in 203.0.113.0/24 (it has ") == 0);
    CHECK(std::string(e.what()).find("lo 127.0.0.1") != std::string::npos);
  }
}

TEST_CASE("a provider that smp does not know, or that is not here, is an error that says so") {
  for (const char* provider : {"sockets", "efa"}) {
    auto children = start(1, 1, sums, [&](FabricOptions& o) { o.provider = provider; });
    const std::string said = join(children)[0];
    if (std::string(provider) == "sockets")
      CHECK(said ==
            "exception: SMP_FABRIC_PROVIDER=sockets: smp knows efa, verbs;ofi_rxm, tcp, net, "
            "tcp;ofi_rxm");
    else if (said != "good")  // there are machines with EFA
      CHECK(said.find("reaches no network at 127.0.0.1 (efa: ") != std::string::npos);
  }
}

TEST_CASE("strangers are refused, and ranks that were told different things are named") {
  auto wrong_key = start(2, 1, sums, [](FabricOptions& options) {
    options.timeout = milliseconds(3000);
    if (options.rank == 1) options.job_key = "another key";
  });
  const auto keys = join(wrong_key);
  CHECK(keys[0].find("timeout 1: rank 0: rank 1 of job '") == 0);
  CHECK(keys[1].find("mismatch 1: rank 1: rank 0 of job '") == 0);
  CHECK(keys[1].find("has another job key") != std::string::npos);

  auto providers = start(3, 1, sums, [](FabricOptions& options) {
    if (options.rank == 2) options.provider = "tcp;ofi_rxm";
    if (options.rank != 2) options.provider = "net";
  });
  for (const std::string& said : join(providers)) {
    CHECK(said.find("mismatch 2: ") == 0);
    CHECK(said.find("has provider tcp;ofi_rxm, messages of 131072 bytes, 4 credits, but rank 0 has "
                    "provider net") != std::string::npos);
  }

  auto sizes = start(2, 1, sums, [](FabricOptions& options) {
    options.timeout = milliseconds(2000);
    if (options.rank == 1) options.size = 3;
  });
  CHECK(join(sizes)[1] == "mismatch 0: rank 1: this job has 3 ranks, but rank 0 was told 2");
}

TEST_CASE("a rank that dies ends the calls of all hosts, which hear who and where it was") {
  for (const int victim : {0, 1, 3}) {
    const Endless endless;
    auto children = start(4, 2, endless.program());
    endless.wait_for(4);
    const auto killed = std::chrono::steady_clock::now();
    kill(children[size_t(victim)].pid(), SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      const std::string said = children[size_t(rank)].join().said;
      if (rank == victim) continue;
      CAPTURE(said);
      CHECK(said.find(fmt::format("peer_lost {}: rank {}: all_reduce #", victim, rank)) == 0);
      CHECK(said.find(fmt::format("rank {} died (rank {} is on ", victim, victim)) !=
            std::string::npos);
    }
    CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(5));
  }
}

TEST_CASE("a rank that is stopped ends the calls of all hosts within five seconds") {
  for (const int victim : {0, 2}) {
    const Endless endless;
    auto children = start(3, 1, endless.program());
    endless.wait_for(3);
    const auto stopped = std::chrono::steady_clock::now();
    kill(children[size_t(victim)].pid(), SIGSTOP);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const std::string said = children[size_t(rank)].join().said;
      CAPTURE(said);
      CHECK(said.find(fmt::format("peer_lost {}: rank {}: all_reduce #", victim, rank)) == 0);
      CHECK(said.find("has not been heard of for 3 s") != std::string::npos);
    }
    CHECK(std::chrono::steady_clock::now() - stopped < std::chrono::seconds(5));
    kill(children[size_t(victim)].pid(), SIGKILL);
    kill(children[size_t(victim)].pid(), SIGCONT);
    children[size_t(victim)].join();
  }
}
