#include "smp/plan/spec/bucket_size.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "plan/plan_samples.h"
#include "smp/plan/layout/layout.h"

using namespace smp;
using namespace smp::layout;

namespace {

constexpr int64_t kMiB = 1 << 20;

Plan on_hosts(int64_t hosts, SampleLayout layout, const ModelSpec& model) {
  Plan plan = sample_plan(model, layout);
  plan.job.cluster.hosts = hosts;
  plan.job.cluster.processes_per_host /= hosts;
  plan.job.parallel.bucket_bytes = plan.job.parallel.shard_bucket_bytes = std::nullopt;
  return plan;
}

}  // namespace

TEST_CASE("buckets grow with the ranks of several hosts, as far as memory and overlap allow") {
  JobSpec job;
  CHECK(bucket_bytes_of(job, 1024, 4096 * kMiB) == 25 * kMiB);  // on one host
  CHECK(shard_bucket_bytes_of(job, 1024, 4096 * kMiB) == kMiB / 4);
  job.cluster.hosts = 128;
  CHECK(bucket_bytes_of(job, 8, 4096 * kMiB) == 25 * kMiB);
  CHECK(bucket_bytes_of(job, 1024, 4096 * kMiB) == 128 * kMiB);  // 128 KiB for each
  CHECK(bucket_bytes_of(job, 1024, 400 * kMiB) == 100 * kMiB);   // four buckets
  CHECK(bucket_bytes_of(job, 1024, 40 * kMiB) == 25 * kMiB);
  CHECK(shard_bucket_bytes_of(job, 1024, 4096 * kMiB) == 128 * kMiB);
  CHECK(shard_bucket_bytes_of(job, 1024, 40 * kMiB) == 40 * kMiB);  // no larger buffers
  CHECK(shard_bucket_bytes_of(job, 1024, 1000) == kMiB / 4);
  job.parallel.bucket_bytes = job.parallel.shard_bucket_bytes = 1;
  CHECK(bucket_bytes_of(job, 1024, 4096 * kMiB) == 1);
  CHECK(shard_bucket_bytes_of(job, 1024, 4096 * kMiB) == 1);
}

TEST_CASE("of up to 1024 ranks on 128 hosts each has 128 KiB of a bucket, or there are but four") {
  const ModelSpec model = gpt2_sized(48, 1024, 16);  // 605 million, 2.4 GB of gradients
  for (const int64_t hosts : {1, 2, 8, 32, 128})
    for (const bool sharded : {false, true}) {
      const int64_t ranks = hosts * 8;
      const RankLayout layout = rank_layout(
          on_hosts(hosts, {.shard = sharded ? ranks : 1, .replica = sharded ? 1 : ranks}, model),
          0);
      CAPTURE(hosts);
      CAPTURE(sharded);
      const auto& buckets = layout.buckets;
      for (const Bucket& bucket : buckets) {  // cut evenly, and hardly padded
        int64_t elements = 0;
        for (const PlacedParameter& p : layout.parameters)
          if (p.layer >= bucket.first_layer && p.layer <= bucket.last_layer)
            elements += p.box.size();
        CHECK(bucket.size() % (sharded ? ranks : 1) == 0);
        if (bucket.size() * 4 >= kMiB) CHECK(bucket.size() - elements <= bucket.size() / 100);
      }
      for (size_t i = 0; i + 1 < buckets.size(); ++i)  // the last one has what is left
        CHECK((buckets[i].size() * 4 / ranks >= kLeastPartBytes ||
               int64_t(buckets.size()) <= kLeastBuckets + 1));
    }
}

TEST_CASE(
    "between hosts sharded layers are packed, but no bucket is larger than the largest layer") {
  const auto layout_on = [](int64_t hosts) {
    Plan plan = on_hosts(hosts, {.shard = 1024}, gpt2_sized(12, 768, 12));
    plan.job.parallel.sharding = Sharding::kParameters;
    return rank_layout(plan, 0);
  };
  const RankLayout one = layout_on(1), many = layout_on(128);
  CHECK(many.weight_buffers == one.weight_buffers);
  CHECK(many.gradient_buffers == one.gradient_buffers);
  CHECK(many.buckets.size() == one.buckets.size());  // blocks are as large as each other
}
