#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allowed_cpus.h"
#include "arena.h"
#include "engine.h"
#include "group_failures.h"
#include "helpers.h"
#include "job.h"
#include "mapped_ahead.h"
#include "port.h"
#include "regroup.h"
#include "smp/comm/communicator.h"
#include "smp/comm/exchange.h"

namespace smp::shm {

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
  ExchangeRule exchange;            // between hosts
  int threads = 0;                  // of a rank in long calls; 0: one, and more after lend_cpus()
  int cpus = 0;                     // of the ranks here together; 0: what they have
  int64_t cache_bytes = 0;          // of these CPUs' last caches; 0: what they have

  bool spans_hosts() const { return hosts.size() > 1; }
  // A rank's place among those of its host.
  int place_here(int rank) const {
    if (host_of.empty()) return rank;
    return int(std::count(host_of.begin(), host_of.begin() + rank, host_of[size_t(rank)]));
  }
  AllowedCpus cpus_here() const {
    AllowedCpus here = allowed_cpus(processes_here);
    if (cpus > 0) here.count = cpus;
    if (cache_bytes > 0) here.cache_bytes = cache_bytes;
    return here;
  }
};

// What one rank holds of a job. Its communicators share it, and the last of them gives it back.
struct Seat {
  Seat(std::shared_ptr<Job> shared_job, int rank, std::chrono::milliseconds timeout,
       Fleet its_fleet = {}, std::unique_ptr<Port> its_port = nullptr)
      : job(std::move(shared_job)),
        fleet(std::move(its_fleet)),
        port(introduced(std::move(its_port), rank)),
        arena(std::make_shared<Arena>(job, fleet.place_here(rank))),
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
    engine.exclusively([&] { helpers.set_count(usual_helpers(cpus.count, ranks_here())); });
  }

  std::unique_ptr<Port> introduced(std::unique_ptr<Port> its_port, int rank) const {
    if (its_port == nullptr) return its_port;
    its_port->introduce(fleet.host_of, [job = job, rank](std::optional<int> awaited) {
      // The failure has ended this rank's calls, whatever they waited for; the asking rank hears of
      // it too.
      if (job->failure().state.load() != FailureRecord::kNone) return std::optional<Standing>();
      Standing own;
      own.has_called = awaited.has_value();
      own.waits_for = awaited.value_or(job->board(rank).blocked_on.load() - 1);
      own.last_call = load(job->board(rank).last_call);
      if (own.waits_for >= 0) own.last_call_of_awaited = load(job->board(own.waits_for).last_call);
      return std::optional(own);
    });
    return its_port;
  }

  std::shared_ptr<Job> job;
  const Fleet fleet;
  std::unique_ptr<Port> port;  // to other hosts
  GroupFailures group_failures;
  std::shared_ptr<Arena> arena;
  std::vector<std::shared_ptr<std::byte[]>> kept;  // memory of groups that failed
  MappedAhead mapped;                              // memory of other ranks; under the engine's lock
  const AllowedCpus cpus;                          // those of this host's ranks together
  Helpers helpers;                                 // under the engine's lock
  Engine engine;
  std::vector<std::unique_ptr<PeerWatch>> watches;
  std::unique_ptr<Regroup> regroup;  // null: the ranks are threads of one process
};

// The communicator of all ranks of the job.
std::unique_ptr<Communicator> make_world(std::shared_ptr<Seat> seat);

}  // namespace smp::shm
