#include "smp/comm/shared_memory.h"

#include <numeric>
#include <utility>
#include <vector>

#include "job.h"
#include "rendezvous.h"
#include "seat.h"
#include "socket_watch.h"

namespace smp {

std::unique_ptr<Communicator> connect_shared_memory(const SharedMemoryOptions& options) {
  using namespace shm;
  const Participant self{options.rank,    options.size,    options.job_id,
                         options.job_key, options.timeout, ""};
  self.check(kMaxRanks, " on one host");
  std::vector<int> all(static_cast<size_t>(options.size));
  std::iota(all.begin(), all.end(), 0);
  Meeting meeting = meet(self, all);
  auto job = std::make_shared<Job>(std::move(meeting.mapping), options.size);
  auto seat = std::make_shared<Seat>(job, options.rank, options.timeout);
  if (options.size > 1)
    seat->watches.push_back(
        std::make_unique<SocketWatch>(job, options.rank, std::move(meeting.peers)));
  return make_world(std::move(seat));
}

}  // namespace smp
