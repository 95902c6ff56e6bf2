#include "smp/comm/jobs/shared_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/local_socket.h"
#include "bootstrap/regroup.h"
#include "bootstrap/rendezvous.h"
#include "groups/seat.h"
#include "jobs/socket_watch.h"
#include "segment/job.h"

namespace smp::jobs {
namespace {

constexpr const char* kDoor = "again";
constexpr std::chrono::milliseconds kBetweenKnocks{2};

waiting::Descriptor make_door(const bootstrap::Participant& self) {
  try {
    return bootstrap::listen_at(self.name_of_socket(kDoor, self.rank));
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::address_in_use) throw;
    self.is_taken();
  }
}

// A child that it has forked may hold its door open.
bool has_ended(const waiting::Descriptor& to_its_door) {
  const waiting::Descriptor process = bootstrap::process_of_peer(to_its_door);
  return process ? bootstrap::wait_readable(process, std::chrono::steady_clock::now())
                 : errno == ESRCH;
}

class RegroupHere final : public bootstrap::Regroup {
 public:
  RegroupHere(const bootstrap::Participant& self, const SharedMemoryOptions& options)
      : bootstrap::Regroup(self, make_door(self)), options_(options) {}

 private:
  Knock knock(int rank, bootstrap::Deadline deadline) override {
    Knock door;
    const std::string name = self().name_of_socket(kDoor, rank);
    bool is_full = false;  // of others who have connected there
    while (!(door.socket = bootstrap::try_connect(name, &is_full)) && is_full &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(kBetweenKnocks);
    if (is_full && !door.socket) return {};
    if (door.socket && bootstrap::user_of_peer(door.socket) != geteuid()) return {};
    door.is_gone = !door.socket || has_ended(door.socket);
    if (door.is_gone) door.socket = waiting::Descriptor();
    return door;
  }
  Place place() override { return {}; }
  std::unique_ptr<comm::Communicator> begin(const Beginning& beginning) override {
    SharedMemoryOptions options = options_;
    options.rank = beginning.rank;
    options.size = beginning.size;
    options.job_id = beginning.job_id;
    options.meeting_timeout = beginning.limit;
    return connect_shared_memory(options);
  }

  const SharedMemoryOptions options_;
};

}  // namespace

std::unique_ptr<comm::Communicator> connect_shared_memory(const SharedMemoryOptions& options) {
  const bootstrap::Participant self{options.rank,
                                    options.size,
                                    options.job_id,
                                    options.job_key,
                                    options.meeting_timeout.value_or(options.timeout),
                                    ""};
  self.check(mesh::kMaxRanks, " on one host");
  std::vector<int> all(static_cast<size_t>(options.size));
  std::iota(all.begin(), all.end(), 0);
  // Before anybody can be missed.
  auto regroup = std::make_unique<RegroupHere>(self, options);
  bootstrap::Meeting meeting = bootstrap::meet(self, all, false);
  auto job = std::make_shared<segment::Job>(std::move(meeting.mapping), options.size);
  groups::Fleet fleet;
  fleet.processes_here = bootstrap::processes_of(meeting.peers);
  fleet.threads = options.threads;
  auto seat = std::make_shared<groups::Seat>(job, options.rank, options.timeout, std::move(fleet));
  if (options.size > 1)
    seat->watches.push_back(
        std::make_unique<SocketWatch>(job, options.rank, std::move(meeting.peers)));
  seat->regroup = std::move(regroup);
  return groups::make_world(std::move(seat));
}

}  // namespace smp::jobs
