#include "smp/comm/jobs/thread_group.h"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "groups/rank_context.h"
#include "segment/shared_job.h"
#include "smp/comm/waiting/creator_process.h"

namespace smp::jobs {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace

void run_ranks(int size, const std::function<void(comm::Communicator&)>& program,
               const ThreadGroupOptions& options) {
  if (size < 1 || size > mesh::kMaxRanks)
    throw std::invalid_argument(fmt::format("run_ranks of {} ranks", size));
  auto mapping = segment::Mapping::anonymous(segment::SharedJob::bytes(size, size));
  segment::SharedJob::prepare(mapping, size, size);
  const auto job = std::make_shared<segment::SharedJob>(std::move(mapping), size);
  std::mutex mutex;
  std::exception_ptr first;
  const waiting::CreatorProcess home;
  auto run = [&](int rank) {
    try {
      groups::HostTopology topology;
      topology.threads = options.threads;
      topology.cpus = options.cpus;
      topology.cache_bytes = options.cache_bytes;
      const auto world = groups::make_world(
          std::make_shared<groups::RankContext>(job, rank, options.timeout, std::move(topology)));
      try {
        program(*world);
      } catch (...) {
        const auto error = std::current_exception();
        if (!home.is_here()) return;
        {
          std::lock_guard guard(mutex);
          if (!first) first = error;
        }
        job->fail(job->failure(), {comm::CommError::Kind::kAborted, rank, rank,
                                   fmt::format("rank {} failed: {}", rank, text_of(error))});
      }
    } catch (...) {
      std::lock_guard guard(mutex);
      if (!first) first = std::current_exception();
    }
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back(run, rank);
  for (std::thread& rank : ranks) rank.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace smp::jobs
