#include "smp/plan/spec/bucket_size.h"

#include <algorithm>

namespace smp {
namespace {

int64_t grown(const JobSpec& job, int64_t usual, int64_t ranks, int64_t most) {
  if (job.cluster.hosts == 1) return usual;
  return std::max(usual, std::min(ranks * kLeastPartBytes, most));
}

}  // namespace

int64_t bucket_bytes_of(const JobSpec& job, int64_t ranks, int64_t gradient_bytes) {
  return job.parallel.bucket_bytes.value_or(
      grown(job, kBucketBytes, ranks, gradient_bytes / kLeastBuckets));
}

int64_t shard_bucket_bytes_of(const JobSpec& job, int64_t ranks, int64_t largest_layer_bytes) {
  return job.parallel.shard_bucket_bytes.value_or(
      grown(job, kShardBucketBytes, ranks, largest_layer_bytes));
}

}  // namespace smp
