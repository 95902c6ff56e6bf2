#include <doctest/doctest.h>
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/fabric_ranks.h"
#include "comm/on_paths.h"
#include "comm/processes.h"
#include "comm/times.h"
#include "held_port.h"

// What a process has of jobs that are over: nothing.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::testing;

namespace {

enum class End { kInOrder, kException, kKilled };
constexpr End kEnds[] = {End::kInOrder, End::kException, End::kKilled};
constexpr int kWarmJobs = 3, kJobs = 9;

void sum(Communicator& comm) {
  std::vector<float> own(1 << 18, 1);
  const auto shared = comm.allocate_symmetric(1 << 20);
  for (float* data : {own.data(), reinterpret_cast<float*>(shared.get())})
    comm.all_reduce(data, data, 1 << 18, DType::kF32, ReduceOp::kSum, "sum")->wait();
}

int64_t open_files() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

int64_t held_bytes() {
  malloc_trim(0);  // what is free is not held
  return resident_bytes();
}

// The communicator of two ranks in one of many jobs.
using Connect = std::function<std::unique_ptr<Communicator>(int rank, int job)>;

void end_as_told(End end, Communicator& comm) {
  sum(comm);
  if (end == End::kKilled) raise(SIGKILL);
  if (end == End::kException) throw std::logic_error("the end");
}

void outlive_peer(End end, Communicator& comm) {
  try {
    sum(comm);
    if (end != End::kInOrder) comm.barrier("nobody else comes")->wait();
  } catch (const CommError&) {
  }
}

// What a process has after jobs with peers that end in every way, but had not after the first ones.
std::string left_after_jobs(const Connect& connect) {
  std::vector<Child> peers;  // forked before anybody has a thread
  for (int job = 0; job < kJobs; ++job)
    peers.emplace_back([&, job]() -> std::string {
      const auto comm = connect(1, job);
      end_as_told(kEnds[job % std::size(kEnds)], *comm);
      return "";
    });
  Child survivor([&] {
    mallopt(M_ARENA_MAX, 1);  // of one malloc_trim() gives back all, of others not what is last
    int64_t files = 0, bytes = 0;
    for (int job = 0; job < kJobs; ++job) {
      if (job == kWarmJobs) files = open_files(), bytes = held_bytes();
      outlive_peer(kEnds[job % std::size(kEnds)], *connect(0, job));
    }
    const int64_t grown = held_bytes() - bytes;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const bool is_steady = true;  // ASan keeps what is freed, TSan what it has seen of it
#else
    const bool is_steady = grown <= bytes / 100;
#endif
    return fmt::format("{} files more{}", open_files() - files,
                       is_steady ? "" : fmt::format(", {} bytes more than {}", grown, bytes));
  });
  for (Child& peer : peers) peer.join();
  return survivor.join().said;
}

}  // namespace

TEST_CASE("processes: a job gives back its files and memory, however its peer ended") {
  const std::string job_id = fresh_job_id();
  CHECK(left_after_jobs([&](int rank, int job) {
          return connect_shared_memory(options_of(rank, 2, fmt::format("{}-{}", job_id, job)));
        }) == "0 files more");
}

TEST_CASE("processes: a job over libfabric gives back its files and memory, as its peer ended") {
  if (!may_die_on(Path::kBetweenHosts)) return;
  const std::string job_id = fresh_job_id();
  const std::vector<HeldPort> ports(kJobs);
  CHECK(left_after_jobs([&](int rank, int job) {
          return connect_fabric(options_of(rank, 2, 1, fmt::format("{}-{}", job_id, job),
                                           ports[size_t(job)].number()));
        }) == "0 files more");
}
