#include "net/network_endpoint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/fake_network.h"
#include "groups/rank_context.h"
#include "net/closed_channels.h"
#include "segment/shared_job.h"

// Two ranks' ends of a network, which move only when the test polls them.
using namespace smp;
using namespace smp::comm;
using namespace smp::mesh;
using namespace smp::testing;
using net::Channel;
using net::ClosedChannels;
using net::NetworkEndpoint;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kSilence{10000};
constexpr int kPolls = 10;
constexpr auto kNotOver = [] { return false; };
constexpr auto kAllHere = [](int) { return false; };

std::unique_ptr<NetworkEndpoint> endpoint_of(FakeNetwork& network, int rank) {
  return std::make_unique<NetworkEndpoint>(network.transport(rank), rank, 77, kSilence);
}

void poll(NetworkEndpoint& endpoint) {
  for (int i = 0; i < kPolls; ++i) endpoint.poll();
}

progress::Call call_of(uint64_t number) {
  progress::Call call;
  call.number = number;
  return call;
}

// A channel to rank 1 which has memory ready for three pieces of call 1.
struct Exposing {
  explicit Exposing(NetworkEndpoint& here) : channel(here, 5, 1) {
    channel.expect(call, to.data(), int64_t(to.size()));
    channel.advertise();
  }
  const progress::Call call = call_of(1);
  std::vector<std::byte> to = std::vector<std::byte>(3 * net::kPieceBytes);
  Channel channel;
};

// Messages 1, 2, ... as long as there is a credit. How many.
uint64_t send_all_credits(NetworkEndpoint& endpoint, Channel& channel) {
  uint64_t sent = 0;
  while (channel.credits().load() > channel.sent()) endpoint.send(channel, call_of(++sent), 0);
  return sent;
}

}  // namespace

TEST_CASE("who has closed its channel and is gone is not asked what it has written") {
  struct Case {
    bool is_heard_before, is_quiet;  // it may have closed it because of a failure
  };
  for (const Case& c : {Case{true, false}, {false, false}, {true, true}, {false, true}})
    for (const int written : {0, 1}) {
      const bool is_heard_before = c.is_heard_before;
      CAPTURE(is_heard_before);
      CAPTURE(c.is_quiet);
      CAPTURE(written);
      NetworkFaults faults;
      faults.writes = true;
      FakeNetwork network(2, faults);
      const auto here = endpoint_of(network, 0);
      auto there = endpoint_of(network, 1);
      Exposing exposing(*here);
      Channel& channel = exposing.channel;
      auto peers = std::make_unique<Channel>(*there, 5, 0);
      poll(*there);
      const std::vector<std::byte> from(net::kPieceBytes, std::byte{1});
      for (int i = 0; i < written; ++i)
        there->send_piece(*peers, exposing.call, from.data(), net::kPieceBytes);
      poll(*there);
      if (c.is_quiet) peers->close_silently();
      peers.reset();
      there.reset();
      if (is_heard_before) {
        poll(*here);
        CHECK(channel.pieces_received().load() == uint64_t(written));
      }

      CHECK(here->release_buffers({&channel}, kSilence, kNotOver, kAllHere));
      CHECK(network.refused() == 0);
    }
}

TEST_CASE("a rank that is gone and never opened a channel has written nothing there") {
  NetworkFaults faults;
  faults.writes = true;
  FakeNetwork network(2, faults);
  const auto here = endpoint_of(network, 0);
  auto there = endpoint_of(network, 1);
  Exposing exposing(*here);
  poll(*there);
  there.reset();
  CHECK(here->release_buffers({&exposing.channel}, kSilence, kNotOver,
                              [](int rank) { return rank == 1; }));
  poll(*here);
  CHECK(!here->unreachable(0));  // the network goes on
}

TEST_CASE("without memory for a message to a rank whoever waits for that rank is told") {
  FakeNetwork network(2, {});
  const auto here = endpoint_of(network, 0);
  network.fill(0);
  std::optional<std::string> why;
  const auto end = std::chrono::steady_clock::now() + kSilence;
  while (!why && std::chrono::steady_clock::now() < end) {
    why = here->unreachable(1);
    here->poll();
  }
  CHECK(why == "rank 0 cannot allocate memory for a message to rank 1: std::bad_alloc");
}

// Where the news of it has not come to yet it would look as if that rank held up whoever asks.
TEST_CASE("a rank whose job has failed does not say that it waits for nobody") {
  FakeNetwork network(2, {});
  auto mapping = segment::Mapping::anonymous(segment::SharedJob::bytes(2, 2));
  segment::SharedJob::prepare(mapping, 2, 2);
  const auto job = std::make_shared<segment::SharedJob>(std::move(mapping), 2);
  constexpr milliseconds kShort{800};
  groups::HostTopology topology;
  topology.host_of = {0, 1}, topology.hosts = {"a", "b"}, topology.ranks_here = 1;
  const groups::RankContext there(
      job, 1, kSilence, topology,
      std::make_unique<NetworkEndpoint>(network.transport(1), 1, 77, kShort));
  NetworkEndpoint here(network.transport(0), 0, 77, kShort);
  here.set_topology(topology.host_of, [](std::optional<int>) { return std::nullopt; });
  const auto answer = [&](uint64_t number) {
    const auto asked = std::chrono::steady_clock::now();
    std::optional<progress::PeerStatus> standing;
    while (!(standing = here.query_status(1, 5, number, asked))) here.poll();
    return *standing;
  };
  bool has_answered = false;  // unless the machine is too busy for that
  for (uint64_t number = 1; number <= 100 && !has_answered; ++number)
    has_answered = !answer(number).is_unresponsive;
  CHECK(has_answered);
  job->write(job->failure(), {CommError::Kind::kTimeout, 0, 0, "it has been found"}, 0);
  CHECK(answer(1000).is_unresponsive);
}

TEST_CASE("what is said of channels that were closed is not kept, of those to be opened it is") {
  FakeNetwork network(2, {});
  const auto here = endpoint_of(network, 0), there = endpoint_of(network, 1);
  for (uint64_t id = 1; id <= 3 * ClosedChannels::kMost / 2; ++id) {
    { const Channel channel(*here, id, 1); }
    poll(*there);
    REQUIRE(there->counts().early == 1);
    { const Channel channel(*there, id, 0); }
    REQUIRE(there->counts().early == 0);
    poll(*here);
    REQUIRE(here->counts().early == 0);
  }
}

TEST_CASE("of the channels that were closed the last are known") {
  ClosedChannels closed;
  for (uint64_t id = 0; id < ClosedChannels::kMost + 2; ++id) closed.add(id, 10 * id);
  CHECK(!closed.written_by(1));
  CHECK(closed.written_by(2) == 20u);
  CHECK(closed.written_by(ClosedChannels::kMost + 1) == 10 * (ClosedChannels::kMost + 1));
  CHECK(!closed.written_by(ClosedChannels::kMost + 2));
}

TEST_CASE(
    "short messages that wait for a credit go as one, and are taken one by one in their order") {
  FakeNetwork network(2, {});
  const auto here = endpoint_of(network, 0), there = endpoint_of(network, 1);
  Channel from(*here, 5, 1), to(*there, 5, 0);
  poll(*here);
  const std::vector<int64_t> sizes{0, 1, 63, 64, 4096, 0};
  std::vector<std::byte> bytes(4096);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i % 251);
  uint64_t number = send_all_credits(*here, from);
  REQUIRE(number == uint64_t(kCredits));
  for (const int64_t size : sizes)
    REQUIRE(here->coalesce(from, call_of(++number), bytes.data(), size));
  CHECK(here->counts().messages == kCredits);
  CHECK(from.credits().load() < from.sent());

  uint64_t taken = 0;
  auto take = [&](int64_t size) {
    REQUIRE(to.arrived().load() > to.taken());
    CHECK(to.front().number == ++taken);
    REQUIRE(to.front().bytes == size);
    CHECK(std::equal(bytes.begin(), bytes.begin() + size, to.front_bytes()));
    to.take();
  };
  poll(*there);
  REQUIRE(to.arrived().load() == uint64_t(kCredits));
  for (int i = 0; i < kCredits / 2; ++i) take(0);
  poll(*here);  // hears of credits
  CHECK(here->counts().messages == kCredits + 1);
  CHECK(from.credits().load() >= from.sent());
  poll(*there);
  CHECK(to.arrived().load() == number);
  for (int i = 0; i < kCredits / 2; ++i) take(0);
  for (const int64_t size : sizes) take(size);
  poll(*here);
  CHECK(here->counts().bytes_in_flight == 0);
  CHECK(there->counts().unexpected == 0);
  CHECK(network.unexpected() == 0);
  // The next has a credit of its own.
  here->send(from, call_of(++number), 0);
  poll(*there);
  take(0);
}

TEST_CASE("credits wait for a message that takes them along while their peer has others") {
  constexpr auto kHalf = uint64_t(kCredits) / 2;
  struct Case {
    const char* what;
    std::function<void(NetworkEndpoint& there, Channel& to)> happens;
    uint64_t sent = kHalf;
    bool is_note = true;
    uint64_t later = 0;  // messages that are sent when the first have been taken
  };
  const Case cases[] = {
      {"a rank waits", [](NetworkEndpoint& there, Channel&) { there.send_held(); }},
      {"a rank sleeps", [](NetworkEndpoint& there, Channel&) { there.send_waiting(); }},
      {"its peer has no others", [](NetworkEndpoint&, Channel&) {}, uint64_t(kCredits)},
      {"the others come", [](NetworkEndpoint& there, Channel&) { poll(there); }, kHalf, true,
       kHalf},
      {"a message goes", [](NetworkEndpoint& there, Channel& to) { there.send(to, call_of(1), 0); },
       kHalf, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    FakeNetwork network(2, {});
    const auto here = endpoint_of(network, 0), there = endpoint_of(network, 1);
    Channel from(*here, 5, 1), to(*there, 5, 0);
    poll(*here), poll(*there);
    for (uint64_t number = 1; number <= c.sent; ++number) here->send(from, call_of(number), 0);
    poll(*there);
    REQUIRE(to.arrived().load() == c.sent);
    const int64_t notes = network.notes();
    for (uint64_t i = 0; i < kHalf; ++i) to.take();
    CHECK(network.notes() == notes + (c.sent == kHalf ? 0 : 1));
    for (uint64_t i = 1; i <= c.later; ++i) here->send(from, call_of(c.sent + i), 0);
    c.happens(*there, to);
    poll(*here);
    CHECK(from.credits().load() == kCredits + kHalf);
    there->send_held();  // told once
    CHECK(network.notes() == notes + (c.is_note ? 1 : 0));
  }
}

TEST_CASE("short messages to a peer that is behind wait for each other no longer than they must") {
  constexpr uint64_t kBehind = kCredits / 2;
  const std::vector<std::byte> bytes(4096, std::byte{7});
  struct Case {
    const char* what;
    std::function<void(NetworkEndpoint& here, NetworkEndpoint& there, Channel& from, Channel& to)>
        happens;
    uint64_t more = 0;  // messages besides
  };
  const Case cases[] = {
      {"a rank waits",
       [](NetworkEndpoint& here, NetworkEndpoint&, Channel&, Channel&) { here.send_held(); }},
      {"a rank sleeps",
       [](NetworkEndpoint& here, NetworkEndpoint&, Channel&, Channel&) { here.send_waiting(); }},
      {"what was sent before is taken",
       [](NetworkEndpoint& here, NetworkEndpoint& there, Channel&, Channel& to) {
         for (uint64_t i = 0; i < kBehind; ++i) to.take();
         there.send_held();
         poll(here);
       }},
      {"a message follows",
       [](NetworkEndpoint& here, NetworkEndpoint&, Channel& from, Channel&) {
         here.send(from, call_of(kBehind + 3), 0);
       },
       1},
      {"one from its caller's memory follows",
       [&](NetworkEndpoint& here, NetworkEndpoint&, Channel& from, Channel&) {
         here.send_from(from, call_of(kBehind + 3), bytes.data(), int64_t(bytes.size()));
       },
       1},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    FakeNetwork network(2, {});
    const auto here = endpoint_of(network, 0), there = endpoint_of(network, 1);
    Channel from(*here, 5, 1), to(*there, 5, 0);
    poll(*here);
    for (uint64_t number = 1; number <= kBehind; ++number) {
      CHECK(!from.coalesces());  // its peer keeps up as far as it knows
      here->send(from, call_of(number), 0);
    }
    for (const uint64_t number : {kBehind + 1, kBehind + 2}) {
      REQUIRE(from.coalesces());
      REQUIRE(here->coalesce(from, call_of(number), bytes.data(), 4096));
    }
    CHECK(from.submitted().load() == kBehind);
    CHECK(from.sent() == kBehind + 1);
    poll(*here), poll(*there);
    CHECK(to.arrived().load() == kBehind);
    c.happens(*here, *there, from, to);
    CHECK(from.submitted().load() == from.sent());
    CHECK(here->counts().messages == int64_t(kBehind + 1 + c.more));
    poll(*here), poll(*there);
    REQUIRE(to.arrived().load() == kBehind + 2 + c.more);
    for (uint64_t number = to.taken() + 1; number <= kBehind + 2 + c.more; ++number) {
      CHECK(to.front().number == number);
      to.take();
    }
    there->send_held();
    poll(*here), poll(*there);
    CHECK(network.unexpected() == 0);
    CHECK(!from.coalesces());
  }
}

TEST_CASE("short messages leave with the end of their channel, and when their buffer is full") {
  NetworkFaults faults;
  faults.short_bytes = size_t{16} << 10;
  FakeNetwork network(2, faults);
  const auto here = endpoint_of(network, 0), there = endpoint_of(network, 1);
  auto from = std::make_unique<Channel>(*here, 5, 1);
  Channel to(*there, 5, 0);
  poll(*here);
  const std::vector<std::byte> bytes(5000);
  uint64_t number = 0;
  while (number < kCredits / 2) here->send(*from, call_of(++number), 0);
  for (int i = 0; i < 4; ++i)  // three fill a buffer
    REQUIRE(here->coalesce(*from, call_of(++number), bytes.data(), int64_t(bytes.size())));
  CHECK(from->submitted().load() == kCredits / 2 + 1);
  from.reset();
  poll(*here), poll(*there);
  CHECK(to.arrived().load() == number);
  CHECK(to.closed_by_peer());
}

TEST_CASE("of those who wait for a credit one buffer is full, or there is one for a few channels") {
  for (const size_t short_bytes : {SIZE_MAX, size_t{16} << 10}) {
    NetworkFaults faults;
    faults.short_bytes = short_bytes;
    FakeNetwork network(2, faults);
    const auto here = endpoint_of(network, 0), there = endpoint_of(network, 1);
    constexpr int64_t kMost = kWindowBytes / kMessageBytes / 4, kShort = 4096;
    const std::vector<std::byte> bytes(kShort);
    std::vector<std::unique_ptr<Channel>> from, to;
    for (uint64_t id = 1; id <= uint64_t(kMost) + 2; ++id) {
      from.push_back(std::make_unique<Channel>(*here, id, 1));
      to.push_back(std::make_unique<Channel>(*there, id, 0));
    }
    poll(*here);
    int64_t joined = 0;
    for (int64_t i = 0; i <= kMost; ++i) {
      Channel& channel = *from[size_t(i)];
      uint64_t number = send_all_credits(*here, channel);
      poll(*here);  // they leave
      const int64_t before = here->counts().bytes_in_flight;
      while (here->coalesce(channel, call_of(++number), bytes.data(), kShort)) ++joined;
      CHECK(here->counts().bytes_in_flight - before <= kMessageBytes);
    }
    CHECK(joined == kMost * int64_t(std::min(short_bytes, size_t(kMessageBytes)) /
                                    size_t(kShort + kMessageHeaderBytes)));
    CHECK(here->has_room(*from.back(), kMessageBytes));
    // Who ends such a channel sends nothing of it, and its buffer is another's.
    from.front().reset();
    CHECK(here->coalesce(*from[kMost], call_of(uint64_t(kCredits) + 1), bytes.data(), kShort));
    poll(*there);
    CHECK(to.front()->arrived().load() == uint64_t(kCredits));
    while (to.front()->taken() < to.front()->arrived().load()) to.front()->take();
    CHECK(to.front()->closed_by_peer());
    from.clear();
    poll(*here);
    CHECK(here->counts().bytes_in_flight == 0);
  }
}

TEST_CASE("what is on its way to a rank leaves though another one's network has ended") {
  NetworkFaults faults;
  faults.writes = true;
  faults.at_once = 1;
  FakeNetwork network(3, faults);
  const auto here = endpoint_of(network, 0), there = endpoint_of(network, 2);
  auto gone = endpoint_of(network, 1);
  auto quiet = std::make_unique<Channel>(*here, 5, 1);
  Channel last(*here, 6, 2), its(*there, 6, 0);
  for (int i = 0; i < 20; ++i) {
    poll(*here);
    poll(*there);
    poll(*gone);
  }
  gone.reset();
  network.cut(1);
  quiet->close_silently();
  quiet.reset();
  const std::vector<std::byte> bytes(60'000);
  here->send_from(last, call_of(1), bytes.data(), int64_t(bytes.size()));
  here->flush(std::chrono::milliseconds(2000));
  CHECK(here->counts().bytes_in_flight == 0);
  poll(*there);
  CHECK(its.arrived().load() == 1);
}
