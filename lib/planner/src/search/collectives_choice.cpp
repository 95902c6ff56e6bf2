#include "search/collectives_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/pricer.h"
#include "search/simplicity.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"

namespace smp::search {
namespace {

constexpr auto kNccl = CollectivesKind::kNccl;
constexpr auto kHost = CollectivesKind::kHost;

struct Prices {
  double nccl_s = 0, host_s = 0;

  bool differ() const { return nccl_s != host_s; }
  CollectivesKind less() const { return host_s < nccl_s ? kHost : kNccl; }
  // Where the model cannot tell whether hosts save anything.
  bool equal() const { return host_s < nccl_s && host_s * kNoise >= nccl_s; }
  std::string words() const {
    return fmt::format("nccl takes {} a step, host {}", text::human_time(nccl_s),
                       text::human_time(host_s));
  }
};

// Of SMP's one way for all groups of data parallelism.
CollectivesChoice choose_as_smp(Pricer& pricer, const choice::LayoutChoice& choice) {
  constexpr std::string_view kGroups = "collectives of data-parallel groups";
  const ParallelSpec& parallel = pricer.job().parallel;
  if (parallel.data_collectives) {
    const CollectivesKind kind = *parallel.data_collectives;
    return {{}, kind, {fmt::format("{} {}: pinned", kGroups, name_of(kind))}};
  }
  if (choice.tensor > 1 && choice.shard == 1) {
    return {{}, kNccl, {fmt::format("{} nccl: tensor parallelism without sharding", kGroups)}};
  }
  const auto step_s = [&](CollectivesKind others) {
    return pricer.with_collectives(parallel.collectives, others).detail(choice).time.step_s;
  };
  const Prices prices{step_s(kNccl), step_s(kHost)};
  if (!prices.differ()) return {};
  const CollectivesKind kind = prices.less();
  return {{}, kind, {fmt::format("{} {}: {}", kGroups, name_of(kind), prices.words())}};
}

std::vector<mesh::Axis> axes_of(const choice::LayoutChoice& choice) {
  std::vector<mesh::Axis> axes;
  if (choice.tensor > 1) axes.push_back(mesh::Axis::kTensor);
  if (choice.shard > 1) axes.push_back(mesh::Axis::kShard);
  if (choice.replica > 1)
    axes.push_back(choice.shard > 1 ? mesh::Axis::kReplica : mesh::Axis::kData);
  return axes;
}

bool offloads(const choice::LayoutChoice& choice) {
  return choice.offload_activations || choice.offload_optimizer || choice.offload_parameters;
}

// The axes one after the other: those before as chosen, those behind with NCCL or as pinned.
CollectivesChoice choose_by_group(Pricer& pricer, const choice::LayoutChoice& choice) {
  const JobSpec& job = pricer.job();
  ParallelSpec parallel = job.parallel;
  CollectivesChoice chosen;
  bool all_by_hosts = true;
  for (const mesh::Axis axis : axes_of(choice)) {
    const auto pinned = layout::collectives_of(parallel, axis);
    auto& own = parallel.collectives.*layout::own_collectives(axis);
    const auto priced_with = [&](CollectivesKind kind) -> Pricer& {
      own = kind;
      return pricer.with_collectives(parallel.collectives, parallel.data_collectives);
    };
    Prices prices;
    prices.nccl_s = priced_with(kNccl).detail(choice).time.step_s;
    const PricedLayout by_hosts = priced_with(kHost).detail(choice);
    prices.host_s = by_hosts.time.step_s;
    // Copies to hosts at an unknown rate would cost nothing.
    const bool priced = prices.differ() && job.cluster.host_link_bytes_per_s > 0;
    const bool taken = !pinned && priced && prices.less() == kHost && offloads(choice);
    const double needed = host_bytes_needed(job, by_hosts.memory);
    const auto has = static_cast<double>(job.cluster.host_memory_bytes);
    const bool lacks = !pinned && priced && prices.less() == kHost && has > 0 && needed > has;
    const bool equal = !pinned && priced && !taken && !lacks && prices.equal();
    own = pinned.value_or(priced && !equal && !taken && !lacks ? prices.less() : kNccl);
    chosen.groups.*layout::own_collectives(axis) = own;
    all_by_hosts = all_by_hosts && own == kHost;
    if (!pinned && !priced) continue;
    std::string reason = fmt::format("collectives of {} groups {}: {}", name_of(axis),
                                     name_of(*own), pinned ? "pinned" : prices.words());
    if (pinned && priced) reason += fmt::format("; {}", prices.words());
    if (equal) {
      reason += fmt::format("; times within {:.0f} % count as equal", 100 * (kNoise - 1));
    }
    if (lacks)
      reason += fmt::format("; host needs {} of host memory, a host has {}",
                            text::human_bytes(text::whole_bytes(needed)),
                            text::human_bytes(job.cluster.host_memory_bytes));
    if (taken) reason += "; the link to the host is reserved for offloading";
    chosen.reasons.push_back(std::move(reason));
  }
  const bool any = !axes_of(choice).empty();
  chosen.others = parallel.data_collectives.value_or(any && all_by_hosts ? kHost : kNccl);
  return chosen;
}

}  // namespace

CollectivesChoice choose_collectives(Pricer& pricer, const choice::LayoutChoice& choice) {
  const JobSpec& job = pricer.job();
  const auto pinned = job.parallel.data_collectives;
  if (job.cluster.device != DeviceKind::kCuda) return {{}, pinned.value_or(kNccl), {}};
  if (job.parallel.framework.is_engine()) return choose_by_group(pricer, choice);
  if (!framework::framework_of(job).offers.smddp) return {{}, pinned.value_or(kNccl), {}};
  if (choice.data() > 1 || pinned) return choose_as_smp(pricer, choice);
  return {};
}

}  // namespace smp::search
