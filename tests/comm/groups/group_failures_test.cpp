#include "groups/group_failures.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/fake_network.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;

namespace {

// A group lives on in one split off it, and another one is aborted: no failure of theirs.
void abort_beside_a_child(Communicator& world) {
  const std::vector<int> both{0, 1};
  auto group = world.split(both);
  const auto child = group->split(both);
  group.reset();
  world.barrier("all have closed it")->wait();
  const auto other = world.split(both);
  other->abort("enough");
  world.barrier("all have aborted")->wait();
  CHECK(!child->error());
  int32_t x = 1;
  child->all_reduce(&x, &x, 1, DType::kI32, ReduceOp::kSum, "x")->wait();
  CHECK(x == 2);
}

}  // namespace

TEST_CASE("a group that lives on in those split off it gives nobody else its place") {
  run_ranks(2, abort_beside_a_child);
  run_hosts(2, 1, abort_beside_a_child);
}

TEST_CASE("a job has room for so many groups, and again for those that are closed") {
  run_ranks(2, [](Communicator& world) {
    std::vector<std::unique_ptr<Communicator>> groups;
    std::string said;
    while (said.empty()) try {
        groups.push_back(world.split({0, 1}));
      } catch (const std::runtime_error& error) {
        said = error.what();
      }
    const std::string all = std::to_string(kMaxGroups);
    CHECK(int(groups.size()) == kMaxGroups - 1);  // and the world
    CHECK(said == "no room for another group of 2 ranks: the job has room for " + all +
                      " groups, and " + all +
                      " (or groups split from them) are open: close groups of 2 ranks first");
    groups.clear();
    world.barrier("all have closed them")->wait();
    CHECK(world.split({0, 1})->size() == 2);
  });
}

TEST_CASE("a rank that is stopped while it has the table of groups is named by who wants it") {
  using std::chrono::milliseconds;
  segment::Mapping mapping = segment::Mapping::anonymous(segment::SharedJob::bytes(2, 2));
  segment::SharedJob::prepare(mapping, 2, 2);
  auto& header = *reinterpret_cast<segment::JobHeader*>(mapping.data());
  segment::SharedJob job(std::move(mapping), 2);
  header.table_lock.store(1 + 1);  // rank 1 has it
  try {
    job.open_group(7, 2, 0, milliseconds(50));
    FAIL("it was opened");
  } catch (const CommError& error) {
    CHECK(error.kind == CommError::Kind::kTimeout);
    CHECK(error.culprit == 1);
  }
  header.table_lock.store(0);
  CHECK(job.open_group(7, 2, 0, milliseconds(50)) == 0);
}

TEST_CASE("symmetric memory: a host's memory for each rank, or twice an even share of it") {
  constexpr size_t kTiB = size_t(1) << 40, kAll = size_t(1) << 47;
  const auto of = [](int ranks, size_t physical, size_t left) {
    return segment::SharedJob::symmetric_bytes_per_rank(ranks, physical, left);
  };
  CHECK(of(1, kTiB, kAll) == kTiB);
  CHECK(of(2, kTiB, kAll) == kTiB);
  CHECK(of(8, 2 * kTiB, kAll) == kTiB / 2);
  // A process may have very many jobs, as each group of PyTorch's is one.
  size_t left = kAll;
  for (int job = 0; job < 50; ++job) {
    const size_t bytes = 8 * of(8, 2 * kTiB, left);
    REQUIRE(bytes < left);
    left -= bytes;
  }
  CHECK(of(8, 2 * kTiB, left) > size_t(1) << 30);
  CHECK(of(4, kTiB, 0) == 0);
}

TEST_CASE("a group split off a lone rank's may outlive it") {
  run_ranks(2, [](Communicator& world) {
    auto alone = world.split({world.rank()});
    const auto child = alone->split({0});
    alone->abort("enough");
    alone.reset();
    REQUIRE(child->error());
    CHECK(std::string(child->error()->what()).find("aborted: enough") != std::string::npos);
  });
}

TEST_CASE("a failure between hosts is kept for those who open the group later, and no longer") {
  segment::Mapping mapping = segment::Mapping::anonymous(segment::SharedJob::bytes(1, 1));
  segment::SharedJob::prepare(mapping, 1, 1);
  segment::SharedJob job(std::move(mapping), 1);
  groups::GroupFailures failures;
  failures.write(job, 7, {CommError::Kind::kAborted, 3, 3, "enough"});
  {
    const groups::RecordPtr record = failures.open(7), child = record;
    REQUIRE(job.read(*record));
    CHECK(job.read(*record)->text == "enough");
    CHECK(failures.key_of(*record) == 7);
    CHECK(!failures.key_of(job.failure()));
  }
  const groups::RecordPtr record = failures.open(7);
  CHECK(!job.read(*record));
}
