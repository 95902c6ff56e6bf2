#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/regroup.h"
#include "groups/group_failures.h"
#include "net/port.h"
#include "progress/engine.h"
#include "segment/allowed_cpus.h"
#include "segment/arena.h"
#include "segment/job.h"
#include "segment/mapped_ahead.h"
#include "smp/comm/communicator.h"
#include "smp/comm/net/exchange.h"
#include "waiting/helpers.h"

namespace smp::groups {

// What watches over other ranks while a seat is held, such as the sockets between processes.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
};

// Where the ranks of a job are. The default: all on this host.
struct Fleet {
  std::vector<int> host_of;        // each rank's host; empty when there is one
  std::vector<std::string> hosts;  // their names in errors
  int ranks_here = 0;
  std::vector<int> processes_here;  // process ids of the other ranks on this host, if known
  net::ExchangeRule exchange;       // between hosts
  int threads = 0;                  // of a rank in long calls; 0: one, and more after lend_cpus()
  int cpus = 0;                     // of the ranks here together; 0: what they have
  int64_t cache_bytes = 0;          // of these CPUs' last caches; 0: what they have

  bool spans_hosts() const { return hosts.size() > 1; }
  // A rank's place among those of its host.
  int place_here(int rank) const {
    if (host_of.empty()) return rank;
    return int(std::count(host_of.begin(), host_of.begin() + rank, host_of[size_t(rank)]));
  }
  segment::AllowedCpus cpus_here() const {
    segment::AllowedCpus here = segment::allowed_cpus(processes_here);
    if (cpus > 0) here.count = cpus;
    if (cache_bytes > 0) here.cache_bytes = cache_bytes;
    return here;
  }
};

// What one rank holds of a job. Its communicators share it, and the last of them gives it back.
struct Seat {
  Seat(std::shared_ptr<segment::Job> shared_job, int rank, std::chrono::milliseconds timeout,
       Fleet its_fleet = {}, std::unique_ptr<net::Port> its_port = nullptr)
      : job(std::move(shared_job)),
        fleet(std::move(its_fleet)),
        port(introduced(std::move(its_port), rank)),
        arena(std::make_shared<segment::Arena>(job, fleet.place_here(rank))),
        cpus(fleet.cpus_here()),
        helpers(std::max(0, fleet.threads - 1)),
        engine(*job, rank, timeout, ranks_here(), cpus.count, port.get()) {}
  ~Seat() {
    const std::chrono::milliseconds limit(job->failures() == 0 ? 2000 : 100);
    if (port) engine.exclusively([&] { port->flush(limit); });
    job->board(engine.rank()).gone.store(1);  // before the sockets close
  }

  int ranks_here() const { return fleet.spans_hosts() ? fleet.ranks_here : job->size(); }

  void lend_cpus() {
    if (fleet.threads > 0) return;
    engine.exclusively(
        [&] { helpers.set_count(waiting::usual_helpers(cpus.count, ranks_here())); });
  }

  std::unique_ptr<net::Port> introduced(std::unique_ptr<net::Port> its_port, int rank) const {
    if (its_port == nullptr) return its_port;
    its_port->introduce(fleet.host_of, [job = job, rank](std::optional<int> awaited) {
      // The failure has ended this rank's calls, whatever they waited for; the asking rank hears of
      // it too.
      if (job->failure().state.load() != segment::FailureRecord::kNone)
        return std::optional<progress::Standing>();
      progress::Standing own;
      own.has_called = awaited.has_value();
      own.waits_for = awaited.value_or(job->board(rank).blocked_on.load() - 1);
      own.last_call = progress::load(job->board(rank).last_call);
      if (own.waits_for >= 0)
        own.last_call_of_awaited = progress::load(job->board(own.waits_for).last_call);
      return std::optional(own);
    });
    return its_port;
  }

  std::shared_ptr<segment::Job> job;
  const Fleet fleet;
  std::unique_ptr<net::Port> port;  // to other hosts
  GroupFailures group_failures;
  std::shared_ptr<segment::Arena> arena;
  std::vector<std::shared_ptr<std::byte[]>> kept;  // memory of groups that failed
  segment::MappedAhead mapped;                     // memory of other ranks; under the engine's lock
  const segment::AllowedCpus cpus;                 // those of this host's ranks together
  waiting::Helpers helpers;                        // under the engine's lock
  progress::Engine engine;
  std::vector<std::unique_ptr<PeerWatch>> watches;
  std::unique_ptr<bootstrap::Regroup> regroup;  // null: the ranks are threads of one process
};

// The communicator of all ranks of the job.
std::unique_ptr<comm::Communicator> make_world(std::shared_ptr<Seat> seat);

}  // namespace smp::groups
