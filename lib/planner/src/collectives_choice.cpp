#include "collectives_choice.h"

#include <fmt/format.h>

#include "pricer.h"
#include "smp/plan/job_names.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

double step_s(JobSpec job, const LayoutChoice& choice, CollectivesKind kind) {
  job.parallel.data_collectives = kind;
  return Pricer(job).detail(choice).time.step_s;
}

bool chooses_by_price(Profile profile) {
  return profile == Profile::kSmpV1 || profile == Profile::kSmpV2;
}

}  // namespace

CollectivesChoice choose_collectives(const JobSpec& job, const LayoutChoice& choice) {
  if (job.parallel.data_collectives) {
    return {*job.parallel.data_collectives,
            fmt::format("collectives of data-parallel groups {}: pinned",
                        name_of(*job.parallel.data_collectives))};
  }
  const Profile profile = job.parallel.profile.value_or(Profile::kSmp);
  if (choice.data() == 1 || job.cluster.device != DeviceKind::kCuda ||
      !(profile == Profile::kSmp || chooses_by_price(profile))) {
    return {};
  }
  if (choice.tensor > 1 && choice.shard == 1) {
    return {CollectivesKind::kNccl,
            "collectives of data-parallel groups nccl: tensor parallelism without sharding"};
  }
  const double nccl = step_s(job, choice, CollectivesKind::kNccl);
  const double smddp = step_s(job, choice, CollectivesKind::kSmddp);
  if (nccl == smddp) return {};
  const std::string prices =
      fmt::format("nccl takes {} a step, smddp {}", human_time(nccl), human_time(smddp));
  if (!chooses_by_price(profile)) {
    return {CollectivesKind::kNccl,
            fmt::format("collectives of data-parallel groups nccl: {}{}", prices,
                        smddp < nccl ? "; parallel.data_collectives: smddp asks for it" : "")};
  }
  const CollectivesKind kind = smddp < nccl ? CollectivesKind::kSmddp : CollectivesKind::kNccl;
  return {kind, fmt::format("collectives of data-parallel groups {}: {}", name_of(kind), prices)};
}

}  // namespace smp
