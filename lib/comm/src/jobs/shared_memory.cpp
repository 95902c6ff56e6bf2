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

#include "bootstrap/regroup.h"
#include "bootstrap/shm_rendezvous.h"
#include "groups/rank_context.h"
#include "jobs/socket_watch.h"
#include "segment/shared_job.h"
#include "smp/rendezvous/sockets/unix_socket.h"

namespace smp::jobs {
namespace {

constexpr const char* kListenerName = "regroup";
constexpr std::chrono::milliseconds kRetryEvery{2};

system::FileDescriptor make_listener(const bootstrap::Participant& self) {
  try {
    return sockets::listen_unix(self.name_of_socket(kListenerName, self.rank));
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::address_in_use) throw;
    self.is_taken();
  }
}

// A forked child may hold the listener open.
bool has_ended(const system::FileDescriptor& to_its_listener) {
  const system::FileDescriptor process = sockets::process_of_peer(to_its_listener);
  return process ? sockets::wait_readable(process, std::chrono::steady_clock::now())
                 : errno == ESRCH;
}

class RegroupHere final : public bootstrap::Regroup {
 public:
  RegroupHere(const bootstrap::Participant& self, const SharedMemoryOptions& options)
      : bootstrap::Regroup(self, make_listener(self)), options_(options) {}

 private:
  ConnectAttempt attempt_connect(int rank, sockets::Deadline deadline) override {
    ConnectAttempt attempt;
    const std::string name = self().name_of_socket(kListenerName, rank);
    bool is_full = false;  // of other connections
    while (!(attempt.socket = sockets::try_connect_unix(name, &is_full)) && is_full &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(kRetryEvery);
    if (is_full && !attempt.socket) return {};
    if (attempt.socket && sockets::user_of_peer(attempt.socket) != geteuid()) return {};
    attempt.is_gone = !attempt.socket || has_ended(attempt.socket);
    if (attempt.is_gone) attempt.socket = system::FileDescriptor();
    return attempt;
  }
  RendezvousAddress rendezvous_address() override { return {}; }
  std::unique_ptr<comm::Communicator> start_job(const NextJob& next) override {
    SharedMemoryOptions options = options_;
    options.rank = next.rank;
    options.size = next.size;
    options.job_id = next.job_id;
    options.rendezvous_timeout = next.limit;
    return connect_shared_memory(options);
  }

  const SharedMemoryOptions options_;
};

}  // namespace

std::unique_ptr<comm::Communicator> connect_shared_memory(const SharedMemoryOptions& options) {
  const bootstrap::Participant self{{options.rank, options.size, options.job_id, options.job_key},
                                    options.rendezvous_timeout.value_or(options.timeout),
                                    ""};
  self.check(mesh::kMaxRanks, " on one host");
  std::vector<int> all(static_cast<size_t>(options.size));
  std::iota(all.begin(), all.end(), 0);
  // Before the first check for missing ranks.
  auto regroup = std::make_unique<RegroupHere>(self, options);
  bootstrap::ShmRendezvous rendezvous = bootstrap::shm_rendezvous(self, all, false);
  auto job = std::make_shared<segment::SharedJob>(std::move(rendezvous.mapping), options.size);
  groups::HostTopology topology;
  topology.processes_here = bootstrap::processes_of(rendezvous.peers);
  topology.threads = options.threads;
  auto context = std::make_shared<groups::RankContext>(job, options.rank, options.timeout,
                                                       std::move(topology));
  if (options.size > 1)
    context->watches.push_back(
        std::make_unique<SocketWatch>(job, options.rank, std::move(rendezvous.peers)));
  context->regroup = std::move(regroup);
  return groups::make_world(std::move(context));
}

}  // namespace smp::jobs
