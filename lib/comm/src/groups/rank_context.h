#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/regroup.h"
#include "groups/group_failures.h"
#include "net/network_endpoint.h"
#include "progress/progress_engine.h"
#include "segment/allowed_cpus.h"
#include "segment/arena.h"
#include "segment/prefaulter.h"
#include "segment/shared_job.h"
#include "smp/comm/communicator.h"
#include "smp/comm/net/exchange.h"
#include "waiting/thread_pool.h"

namespace smp::groups {

// Watches over other ranks while a rank context lives, for example at the sockets between
// processes.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
};

// The hosts of a job's ranks. The default: all on this host.
struct HostTopology {
  std::vector<int> host_of;        // each rank's host; empty: all on one host
  std::vector<std::string> hosts;  // their names in errors
  int ranks_here = 0;
  std::vector<int> processes_here;  // process ids of the other ranks on this host, if known
  net::ExchangeRule exchange;       // between hosts
  int threads = 0;                  // of a rank in long calls; 0: one, and more after lend_cpus()
  int cpus = 0;                     // of all ranks here; 0: as found
  int64_t cache_bytes = 0;          // of these CPUs' last-level caches; 0: as found

  bool spans_hosts() const { return hosts.size() > 1; }
  // A rank's index among the ranks of its host.
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

// The resources of one rank in a job. Its communicators share them, and the last communicator frees
// them.
struct RankContext {
  RankContext(std::shared_ptr<segment::SharedJob> shared_job, int rank,
              std::chrono::milliseconds timeout, HostTopology its_topology = {},
              std::unique_ptr<net::NetworkEndpoint> its_endpoint = nullptr)
      : job(std::move(shared_job)),
        topology(std::move(its_topology)),
        endpoint(with_topology(std::move(its_endpoint), rank)),
        arena(std::make_shared<segment::Arena>(job, topology.place_here(rank))),
        cpus(topology.cpus_here()),
        pool(std::max(0, topology.threads - 1)),
        engine(*job, rank, timeout, ranks_here(), cpus.count, endpoint.get()) {}
  ~RankContext() {
    const std::chrono::milliseconds limit(job->failures() == 0 ? 2000 : 100);
    if (endpoint) engine.exclusively([&] { endpoint->flush(limit); });
    job->board(engine.rank()).gone.store(1);  // before the sockets close
  }

  int ranks_here() const { return topology.spans_hosts() ? topology.ranks_here : job->size(); }

  void lend_cpus() {
    if (topology.threads > 0) return;
    engine.exclusively(
        [&] { pool.set_count(waiting::default_pool_threads(cpus.count, ranks_here())); });
  }

  std::unique_ptr<net::NetworkEndpoint> with_topology(
      std::unique_ptr<net::NetworkEndpoint> its_endpoint, int rank) const {
    if (its_endpoint == nullptr) return its_endpoint;
    its_endpoint->set_topology(topology.host_of, [job = job, rank](std::optional<int> awaited) {
      // The failure has ended all calls of this rank. The asking rank will learn of the failure
      // too.
      if (job->failure().state.load() != segment::FailureRecord::kNone)
        return std::optional<progress::PeerStatus>();
      progress::PeerStatus own;
      own.has_called = awaited.has_value();
      own.waits_for = awaited.value_or(job->board(rank).blocked_on.load() - 1);
      own.last_call = progress::load(job->board(rank).last_call);
      if (own.waits_for >= 0)
        own.last_call_of_awaited = progress::load(job->board(own.waits_for).last_call);
      return std::optional(own);
    });
    return its_endpoint;
  }

  std::shared_ptr<segment::SharedJob> job;
  const HostTopology topology;
  std::unique_ptr<net::NetworkEndpoint> endpoint;  // to other hosts
  GroupFailures group_failures;
  std::shared_ptr<segment::Arena> arena;
  std::vector<std::shared_ptr<std::byte[]>> quarantined;  // memory of groups that failed
  segment::Prefaulter prefaulter;   // memory of other ranks; under the engine's lock
  const segment::AllowedCpus cpus;  // those of this host's ranks together
  waiting::ThreadPool pool;         // under the engine's lock
  progress::ProgressEngine engine;
  std::vector<std::unique_ptr<PeerWatch>> watches;
  std::unique_ptr<bootstrap::Regroup> regroup;  // null: the ranks are threads of one process
};

// The communicator of all ranks of the job.
std::unique_ptr<comm::Communicator> make_world(std::shared_ptr<RankContext> context);

}  // namespace smp::groups
