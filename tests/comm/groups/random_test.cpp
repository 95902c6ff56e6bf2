#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "comm/any_call.h"
#include "comm/fabric_ranks.h"
#include "comm/layouts.h"
#include "comm/on_paths.h"
#include "comm/processes.h"
#include "comm/sweep.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::net;
using namespace smp::testing;

namespace {

// The same for all ranks but for whose memory is symmetric: that of all, of some, or of none.
AnyCall random_call(std::mt19937& random, int size, int rank, SymmetricRoom& room) {
  AnyCall call;
  call.op = kOps[random() % std::size(kOps)];
  call.dtype = kDTypes[random() % std::size(kDTypes)];
  call.reduction = kReduceOps[random() % std::size(kReduceOps)];
  call.root = int(random() % uint32_t(size));
  const int64_t limit = int64_t(1) << (random() % 17);
  call.count = int64_t(random() % uint32_t(limit));
  call.in_place = random() % 2 == 0;
  call.salt = random() % Values::kPeriod;
  const uint32_t whose = random() % 4;
  if (whose == 0 || (whose == 1 && rank % 2 == 0) || whose == 2) call.room = &room;
  return call;
}

// Random calls, up to four under way, whose symmetric memory is gone with them; returns how many
// elements were wrong.
int64_t random_calls(Communicator& comm, uint32_t seed, int calls) {
  std::mt19937 random(seed);
  SymmetricRoom room(comm);
  std::deque<std::unique_ptr<CallUnderWay>> under_way;
  int64_t wrong = 0;
  for (int i = 0; i < calls || !under_way.empty(); ++i) {
    if (i < calls)
      under_way.push_back(std::make_unique<CallUnderWay>(
          comm, random_call(random, comm.size(), comm.rank(), room)));
    const size_t window = i < calls ? random() % 4 : 0;
    for (; under_way.size() > window; under_way.pop_front())
      wrong += under_way.front()->wrong_elements();
  }
  return wrong;
}

// In the group, in a second one of the same ranks in another order, and in many, one after the
// other, of all but rank 0: these two from a thread of their own.
void in_three_groups(Communicator& world, int64_t rounds) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.rbegin(), all.rend(), 0);
  const auto other = world.split(all);
  std::vector<int> rest(all.size() - 1);  // rank 0 is the last of `other`
  std::iota(rest.begin(), rest.end(), 0);
  std::thread thread([&] {
    for (uint32_t round = 0; round < rounds; ++round) {
      CHECK(random_calls(*other, 1000 + round, 100) == 0);
      if (world.rank() == 0) continue;
      const auto part = other->split(rest);
      CHECK(random_calls(*part, 2000 + round, 100) == 0);
    }
  });
  for (uint32_t round = 0; round < rounds; ++round) CHECK(random_calls(world, round, 200) == 0);
  thread.join();
}

int64_t rounds_of_three_groups() { return swept("SMP_COMM_SWEEP_CALLS", 1200) / 3 / 200; }

// Rounds of random calls in the world and in groups that are made for a round, for so long; after a
// third of the time the memory must not grow.
std::string soak(Communicator& comm, std::chrono::seconds time) {
  constexpr int64_t kGrowthBytes = 1 << 20;
  constexpr std::chrono::seconds kWarm{20};
  constexpr uint32_t kLeastRounds = 3;
  int64_t wrong = 0, warm = 0;
  uint32_t seed = 0;
  std::vector<int> members(static_cast<size_t>(comm.size()));
  std::iota(members.begin(), members.end(), 0);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t is_over = 0; is_over == 0; ++seed) {
    wrong += random_calls(comm, seed, 200);
    std::mt19937 random(seed);
    std::shuffle(members.begin(), members.end(), random);
    const std::vector<int> some(members.begin(), members.begin() + 1 + random() % members.size());
    if (std::find(some.begin(), some.end(), comm.rank()) != some.end())
      wrong += random_calls(*comm.split(some), seed, 50);
    const auto since = std::chrono::steady_clock::now() - begin;
    is_over = since >= time && seed + 1 >= kLeastRounds;
    if (since < time / 3) warm = std::max(warm, resident_bytes());
    comm.broadcast(&is_over, 1, DType::kI64, 0, "over")->wait();
  }
  const int64_t grown = resident_bytes() - warm;
  if (time / 3 >= kWarm && comm.rank() == 0) {
    fmt::print("{} rounds, {} bytes more than in the first third\n", seed, grown);
    std::fflush(stdout);  // a rank ends by _exit
  }
  std::string said = std::to_string(wrong) + " wrong";
  if (time / 3 >= kWarm && grown >= kGrowthBytes) said += fmt::format(", {} bytes more", grown);
  return said;
}

// As in a job: a machine may stand still for a minute in half an hour.
constexpr std::chrono::minutes kPatience{5};

}  // namespace

TEST_CASE("random calls, several under way, in three groups from two threads") {
  for (const int size : {2, 3, 4})
    run_ranks(size, [](Communicator& world) { in_three_groups(world, rounds_of_three_groups()); });
}

TEST_CASE("random calls between hosts, in three groups from two threads, over a bad network") {
  HostsOptions options;
  options.timeout = kPatience;
  options.faults.delay_polls = 5, options.faults.reorder = true, options.faults.refuse = 0.1;
  for (const Grid& grid : {Grid{2, 1}, Grid{3, 1}, Grid{2, 2}}) {
    ++options.faults.seed;
    run_hosts(
        grid.hosts, grid.per_host,
        [](Communicator& world) { in_three_groups(world, rounds_of_three_groups()); }, options);
  }
}

TEST_CASE("processes: random calls, several under way, for as long as asked for") {
  ProcessOptions patient;
  patient.timeout = kPatience;
  const std::chrono::seconds time(swept("SMP_COMM_SOAK_S", 0));
  const auto program = [&](Communicator& comm) { return soak(comm, time); };
  for (const Outcome& outcome : run_processes(4, program, patient))
    CHECK(outcome.said == "0 wrong");
}

TEST_CASE("processes: random calls over libfabric, for as long as asked for") {
  if (!is_here(Path::kBetweenHosts)) return;
  const std::chrono::seconds time(swept("SMP_COMM_SOAK_S", 0));
  auto ranks = start(
      4, 2, [&](Communicator& comm) { return soak(comm, time); },
      [](FabricOptions& options) { options.timeout = kPatience; });
  for (const std::string& said : join(ranks)) CHECK(said == "0 wrong");
}
