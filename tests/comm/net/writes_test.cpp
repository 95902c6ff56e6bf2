#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/fake_network.h"
#include "comm/network.h"
#include "comm/processes.h"
#include "comm/some_of_everything.h"
#include "comm/two_ends.h"

// Pieces that their sender writes to memory that the receiver has opened.
using namespace smp;
using namespace smp::comm;
using namespace smp::net;
using namespace smp::testing;

namespace {

using net::FabricTransport;

FabricTransport::Transfer straight(std::byte* memory, size_t bytes, int peer) {
  FabricTransport::Transfer transfer;
  transfer.message_class = FabricTransport::MessageClass::kZeroCopy;
  transfer.rest = memory;
  transfer.rest_bytes = bytes;
  transfer.peer = peer;
  return transfer;
}

}  // namespace

namespace {

// "good", or what is not. In a process of its own: what libfabric keeps of connections is gone with
// it.
std::string write_and_close(const std::string& provider, bool is_own_memory) {
  constexpr size_t kPieces = 6, kBytes = 100000;
  TwoEnds ends(provider, FabricProtocol::kWrite);
  std::vector<std::byte> from(kPieces * kBytes), anybodys(kPieces * kBytes);
  for (size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i % 251 + 1);
  const auto own = ends.other->allocate(anybodys.size());
  std::byte* const to = is_own_memory ? own->data() : anybodys.data();
  std::vector<FabricTransport::Transfer> receives, sends;
  for (size_t i = 0; i < kPieces; ++i) {
    receives.push_back(straight(to + i * kBytes, kBytes, -1));
    if (is_own_memory) receives.back().rest_memory = own.get();
    sends.push_back(straight(from.data() + i * kBytes, kBytes, 1));
  }
  for (size_t i = 0; i < kPieces; ++i) {
    ends.other->expose(receives[i], 1000 + i);
    if (!receives[i].error.empty()) return "not open: " + receives[i].error;
    sends[i].remote_buffer = receives[i].remote_buffer;
  }
  // The last is taken back before anything is written; the others come in another order.
  FabricTransport::Transfer& closed = receives.back();
  ends.other->cancel(closed);
  std::vector<FabricTransport::Transfer*> came;
  auto poll = [&] {
    const auto more = ends.poll_both();
    came.insert(came.end(), more.begin(), more.end());
  };
  for (size_t i = kPieces - 1; i-- > 0;)
    while (!ends.one->send(sends[i])) poll();
  while (came.size() < kPieces || ends.left < kPieces - 1) poll();
  for (size_t i = 0; i + 1 < kPieces; ++i)
    if (!receives[i].error.empty() || receives[i].bytes != kBytes) return "not complete";
  std::byte* const last = to + (kPieces - 1) * kBytes;
  if (!std::equal(to, last, from.begin())) return "not what was written";
  if (closed.error.empty()) return "not closed";

  // Who writes all the same fails, or nobody hears of it: of shm not even the writer.
  came.clear();
  while (!ends.one->send(sends.back())) poll();
  while (ends.left < kPieces && provider != "shm") poll();
  for (int i = 0; i < 200; ++i) poll();
  if (!came.empty()) return "told of a write to what is closed";
  const bool is_as_it_was =
      std::all_of(last, last + kBytes, [](std::byte b) { return b == std::byte{0}; });
  return is_as_it_was ? "good" : "written to when it was closed";
}

}  // namespace

TEST_CASE("what a peer writes comes to the place that is open, and to none that has been closed") {
  if (!has_network()) return;
  for (const std::string& provider : network_providers({"net", "tcp;ofi_rxm"}))
    for (const bool is_own_memory : {false, true}) {
      CAPTURE(provider);
      CAPTURE(is_own_memory);
      Child child([&] { return write_and_close(provider, is_own_memory); });
      CHECK(child.join().said == "good");
    }
}

TEST_CASE("a call that ends early has its memory again before its peers' writes can come to it") {
  for (const bool wants_own_memory : {false, true}) {
    HostsOptions options;
    options.faults.writes = true;
    options.faults.wants_own_memory = wants_own_memory;
    options.faults.delay_polls = 200;  // they are under way for long
    options.faults.reorder = true;
    options.afterwards = [](FakeNetwork& network) {
      CHECK(network.unexpected() == 0);
      CHECK(network.refused() == 0);  // who was asked to stop did
    };
    run_hosts(
        2, 1,
        [](Communicator& comm) {
          for (int round = 0; round < 5; ++round) {
            const auto both = comm.split({0, 1});
            constexpr int64_t kBytes = 5 << 20;
            auto x = std::make_unique<std::vector<std::byte>>(kBytes);
            std::string said;
            try {
              const WorkPtr work = comm.rank() == 0
                                       ? both->send(x->data(), kBytes, DType::kU8, 1, "m")
                                       : both->recv(x->data(), kBytes, DType::kU8, 0, "m");
              for (int i = 0; i < 30 * round && comm.rank() == 1; ++i) work->done();
              if (comm.rank() == 1) both->abort("enough");
              work->wait();
              both->barrier("b")->wait();
            } catch (const CommError& e) {
              said = e.what();
            }
            x.reset();
            CHECK(said.find("rank 1 aborted: enough") != std::string::npos);
          }
          some_of_everything(comm, 200000);
        },
        options);
  }
}

TEST_CASE("a peer that has written nothing yet, or has no such channel, says so when it is asked") {
  HostsOptions options;
  options.faults.writes = true;
  run_hosts(
      2, 1,
      [](Communicator& comm) {
        const auto both = comm.split({0, 1});
        std::vector<float> x(1 << 20);
        if (comm.rank() == 1) {
          const WorkPtr work = both->recv(x.data(), 1 << 20, DType::kF32, 0, "nobody sends this");
          both->abort("enough");
          CHECK_THROWS_AS(work->wait(), CommError);
        }
        some_of_everything(comm, 200000);
      },
      options);
}

TEST_CASE("who cannot open its memory says how much, and of which network") {
  struct Case {
    bool wants_own_memory;
    const char* says;
  };
  for (const Case& c :
       {Case{false, "rank 1 cannot expose 249856 bytes of its memory to rank 0: no memory"},
        {true, "rank 1 cannot expose 131072 bytes of its memory to rank 0: std::bad_alloc"}}) {
    std::vector<std::string> errors(2);
    std::atomic<int> ended{0};
    HostsOptions options;
    options.faults.writes = true;
    options.faults.wants_own_memory = c.wants_own_memory;
    run_hosts(
        2, 1,
        [&](Communicator& comm, FakeNetwork& network) {
          std::vector<std::byte> x(600 << 10);
          try {
            for (const int64_t bytes : {int64_t{1}, int64_t(x.size())}) {
              (comm.rank() == 0 ? comm.send(x.data(), bytes, DType::kU8, 1, "m")
                                : comm.recv(x.data(), bytes, DType::kU8, 0, "m"))
                  ->wait();
              network.fill(1);
            }
          } catch (const CommError& e) {
            errors[size_t(comm.rank())] = text_of(e);
          }
          ended.fetch_add(1);
          while (ended.load() < comm.size()) std::this_thread::yield();
        },
        options);
    for (const std::string& error : errors) {
      CAPTURE(error);
      CHECK(error.find("rank 1: recv #2 'm' of 614400 uint8") != std::string::npos);
      CHECK(error.find(c.says) != std::string::npos);
    }
  }
}
