#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/fake_network.h"
#include "comm/network.h"
#include "comm/processes.h"
#include "comm/symmetric_buffer.h"
#include "net/ofi_transport.h"
#include "net/registration.h"

// Networks that take registered memory alone (FI_MR_LOCAL) know what allocate_symmetric gives.
using namespace smp;
using namespace smp::comm;
using namespace smp::mesh;
using namespace smp::net;
using namespace smp::testing;

namespace {

constexpr int64_t kLong = 300001;   // goes straight, in pieces
constexpr int64_t kShort = 100001;  // in one message, from where it lies

std::byte byte_of(int rank, int64_t i) { return std::byte(i % 251 + rank); }

void fill(std::byte* memory, int rank, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) memory[i] = byte_of(rank, i);
}

// What is wrong with memory that has come from `rank`.
std::string wrong_with(const std::byte* memory, int rank, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i)
    if (memory[i] != byte_of(rank, i)) return "byte " + std::to_string(i) + " is wrong";
  return "";
}

// Rank 0 sends, rank 1 receives; the barrier is for both to be through.
std::string pass_on(Communicator& comm, std::byte* memory, int64_t bytes) {
  if (comm.rank() == 0) fill(memory, 0, bytes);
  (comm.rank() == 0 ? comm.send(memory, bytes, DType::kU8, 1, "m")
                    : comm.recv(memory, bytes, DType::kU8, 0, "m"))
      ->wait();
  comm.barrier("b")->wait();
  return wrong_with(memory, 0, bytes);
}

// All ranks' parts in place, and sums, by way of libfabric in this process.
std::string calls_of_symmetric_memory(const std::string& provider, FabricProtocol protocol) {
  HostsOptions options;
  options.end = [&] {
    return net::open_ofi_transport("127.0.0.1", provider, protocol, 0, true).transport;
  };
  std::string said[4];
  run_hosts(
      2, 2,
      [&](Communicator& comm) {
        const int size = comm.size(), rank = comm.rank();
        std::string& wrong = said[rank];
        for (const int64_t bytes : {kShort, kLong}) {
          const auto all = comm.allocate_symmetric(size * bytes);
          std::byte* const own = all.get() + rank * bytes;
          fill(own, rank, bytes);
          comm.all_gather(own, all.get(), bytes, DType::kU8, "g")->wait();
          for (int r = 0; r < size && wrong.empty(); ++r)
            wrong = wrong_with(all.get() + r * bytes, r, bytes);
          const int64_t count = bytes / 4;
          const auto sum = comm.allocate_symmetric(4 * count);
          std::vector<int32_t> anybodys(static_cast<size_t>(count), rank);
          memcpy(sum.get(), anybodys.data(), size_t(4 * count));
          comm.all_reduce(sum.get(), sum.get(), count, DType::kI32, ReduceOp::kSum, "r")->wait();
          comm.all_reduce(anybodys.data(), anybodys.data(), count, DType::kI32, ReduceOp::kSum, "r")
              ->wait();
          if (anybodys.back() != 6) wrong = "a sum is wrong";
          if (memcmp(sum.get(), anybodys.data(), size_t(4 * count)) != 0) wrong = "sums differ";
        }
      },
      options);
  for (const std::string& wrong : said)
    if (!wrong.empty()) return wrong;
  return "good";
}

}  // namespace

TEST_CASE("symmetric memory goes over a network that takes registered memory alone uncopied") {
  for (const bool writes : {false, true}) {
    CAPTURE(writes);
    std::shared_ptr<std::byte[]> kept[2];  // longer than the network
    HostsOptions options;
    options.faults.wants_own_memory = true;
    options.faults.writes = writes;
    options.afterwards = [](FakeNetwork& network) {
      CHECK(network.foreign() == 0);
      CHECK(network.unexpected() == 0);
      CHECK(network.adopted() == 2);  // what is kept, until the network ends
    };
    run_hosts(
        2, 1,
        [&](Communicator& comm, FakeNetwork& network) {
          auto own = comm.allocate_symmetric(2 * kLong);
          kept[comm.rank()] = comm.allocate_symmetric(1);
          comm.barrier("b")->wait();
          CHECK(network.adopted() == 4);
          std::vector<std::byte> anybodys(kLong);
          struct Case {
            std::byte* memory;
            int64_t bytes, uncopied;  // by both
          };
          int64_t before = 0;
          for (const Case& c : {Case{own.get(), kLong, 2 * kLong},
                                {own.get() + kLong, kLong, 2 * kLong},  // the end of it
                                {own.get() + 77, kShort, kShort},       // its receiver copies
                                {own.get(), 1000, 0},
                                {anybodys.data(), kLong, 0},
                                {anybodys.data(), kShort, 0}}) {
            CAPTURE(c.bytes);
            CHECK(pass_on(comm, c.memory, c.bytes) == "");
            CHECK(network.zero_copy_bytes() - before == c.uncopied);
            before = network.zero_copy_bytes();
            comm.barrier("b")->wait();
          }
          own.reset();
          comm.barrier("b")->wait();
          CHECK(network.adopted() == 2);
        },
        options);
  }
}

TEST_CASE("partial sums leave a host uncopied over a network that takes registered memory alone") {
  constexpr int64_t kPart = 100000;  // elements of each rank
  HostsOptions options;
  options.faults.wants_own_memory = true;
  options.afterwards = [](FakeNetwork& network) {
    CHECK(network.foreign() == 0);
    CHECK(network.zero_copy_bytes() == 4 * kPart * 4);  // each rank sends a part to the other host
    CHECK(network.adopted() == 0);
  };
  run_hosts(
      2, 2,
      [&](Communicator& comm) {
        Buffer in(comm, 4 * kPart, true), out(comm, kPart, true);
        for (int64_t i = 0; i < 4 * kPart; ++i) in[i] = float(comm.rank() + i / kPart);
        comm.reduce_scatter(in.data(), out.data(), 4 * kPart, DType::kF32, ReduceOp::kSum, "s")
            ->wait();
        CHECK(out[0] == 6 + 4 * float(comm.rank()));
        CHECK(out[kPart - 1] == out[0]);
      },
      options);
}

TEST_CASE(
    "symmetric memory that a network does not register is refused, and what there is goes on") {
  HostsOptions options;
  options.faults.wants_own_memory = true;
  options.faults.writes = false;  // for which it would have to register more
  run_hosts(
      2, 1,
      [](Communicator& comm, FakeNetwork& network) {
        const auto early = comm.allocate_symmetric(kLong);
        CHECK(pass_on(comm, early.get(), kLong) == "");
        network.fill(comm.rank());
        CHECK_THROWS_WITH_AS(comm.allocate_symmetric(kLong), "too much is locked",
                             std::runtime_error);
        CHECK(pass_on(comm, early.get(), kLong) == "");
      },
      options);
}

TEST_CASE("who may not register memory hears how much, and what limits it") {
  const auto said_with = [](rlim_t limit) {
    Child child([limit] {
      rlimit now{};
      getrlimit(RLIMIT_MEMLOCK, &now);
      now.rlim_cur = limit;
      if (setrlimit(RLIMIT_MEMLOCK, &now) != 0) return std::string("no such limit");
      return net::registration_refused("verbs;ofi_rxm", 4194304, "Cannot allocate memory");
    });
    return child.join().said;
  };
  CHECK(said_with(65536) ==
        "provider verbs;ofi_rxm cannot register 4194304 bytes of memory (fi_mr_reg: Cannot "
        "allocate memory); the process can lock at most 65536 bytes in all: raise RLIMIT_MEMLOCK "
        "(ulimit -l, LimitMEMLOCK= of systemd, --ulimit memlock=-1 of docker)");
  const std::string unlimited = said_with(RLIM_INFINITY);
  if (unlimited == "no such limit") return;  // of who may not raise it
  CHECK(unlimited ==
        "provider verbs;ofi_rxm cannot register 4194304 bytes of memory (fi_mr_reg: Cannot "
        "allocate memory); the process has no limit of locked memory");
}

// Not tcp;ofi_rxm: where TCP carries it, it takes messages from the beginning of what is
// registered.
TEST_CASE("libfabric that is to want registered memory has it of every message") {
  if (!has_network()) return;
  for (const FabricProtocol protocol : {FabricProtocol::kTagged, FabricProtocol::kWrite}) {
    CAPTURE(name_of(protocol));
    Child child([&] { return calls_of_symmetric_memory("net", protocol); });
    CHECK(child.join().said == "good");
  }
}
