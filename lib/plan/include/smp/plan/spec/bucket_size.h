#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

// Bytes at which a bucket of gradients is closed, where the job says auto. Between hosts each
// bucket's sum is cut evenly among all ranks, and a part of a few bytes costs as much as one of
// many: buckets grow with the ranks, so that a part has kLeastPartBytes, as far as memory and
// overlap allow. What stays below goes by the exchange that takes the least time (lib/comm,
// exchange.h). Pure; any thread.
namespace smp {

inline constexpr int64_t kBucketBytes = 25 << 20;  // PyTorch DDP's cap
// Of sharded gradients and weights. Each bucket is a meeting: 8 ranks on 2 CPUs lost 0.3 ms by one
// (AlexNet of configs/jobs/digits.yaml, measured), in which they sum about as much.
inline constexpr int64_t kShardBucketBytes = 256 << 10;
inline constexpr int64_t kLeastPartBytes = 128 << 10;  // a message between hosts
inline constexpr int64_t kLeastBuckets = 4;  // of a rank: the last one's reduction is not hidden

inline constexpr int kMostReductions = 4;  // of buckets, under way at once in a rank
// Buffers that blocks' buckets take in turn while their gradients are whole, where these are
// sharded and no weight gradient is put off.
inline constexpr int kGradientBuffers = 2;

// Of gradients that are whole on each of `ranks` data-parallel ranks; all of a rank's take
// `gradient_bytes`. They lie in the rank's flat buffer anyway: larger buckets take no memory.
int64_t bucket_bytes_of(const JobSpec& job, int64_t ranks, int64_t gradient_bytes);

// Of gradients, and weights, sharded over `ranks`. Buckets that are whole at once take memory,
// which is that of the largest layer at least: they do not grow beyond it.
int64_t shard_bucket_bytes_of(const JobSpec& job, int64_t ranks, int64_t largest_layer_bytes);

}  // namespace smp
