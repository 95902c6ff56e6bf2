#include "smp/comm/shared_memory.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "job.h"
#include "rendezvous.h"
#include "seat.h"
#include "socket_watch.h"

namespace smp {
namespace {

using namespace shm;

void check(const SharedMemoryOptions& options) {
  if (options.size < 1 || options.size > kMaxRanks)
    throw std::invalid_argument(fmt::format("a job of {} ranks on one host: 1 to {} are possible",
                                            options.size, kMaxRanks));
  if (options.rank < 0 || options.rank >= options.size)
    throw std::invalid_argument(
        fmt::format("no rank {} in a job of {} ranks", options.rank, options.size));
  if (options.job_id.empty() || options.job_id.size() > 64)
    throw std::invalid_argument("the job id must have 1 to 64 characters");
  if (options.job_key.empty()) throw std::invalid_argument("the job key is empty");
}

}  // namespace

std::unique_ptr<Communicator> connect_shared_memory(const SharedMemoryOptions& options) {
  check(options);
  std::vector<int> all(static_cast<size_t>(options.size));
  std::iota(all.begin(), all.end(), 0);
  Meeting meeting = meet(options, all);
  auto job = std::make_shared<Job>(std::move(meeting.mapping), options.size);
  auto seat = std::make_shared<Seat>(job, options.rank, options.timeout);
  if (options.size > 1)
    seat->watches.push_back(
        std::make_unique<SocketWatch>(job, options.rank, std::move(meeting.peers)));
  return make_world(std::move(seat));
}

}  // namespace smp
