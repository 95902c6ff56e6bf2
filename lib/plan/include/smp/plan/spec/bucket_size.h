#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

// Bytes at which a bucket of gradients is closed, where the job says auto. Between hosts each
// bucket's sum is cut evenly among all ranks, and a small part costs as much as a large one. So
// buckets grow with the ranks until a part has kLeastPartBytes, within the limits of memory and
// overlap. A smaller part takes the exchange with the least time (lib/comm, exchange.h). Pure; any
// thread.
namespace smp {

inline constexpr int64_t kBucketBytes = 25 << 20;  // PyTorch DDP's cap
// For sharded gradients and weights. Each bucket is a synchronisation point: 8 ranks on 2 CPUs lost
// 0.3 ms at one (AlexNet of configs/jobs/digits.yaml, measured), in which they sum about as much.
inline constexpr int64_t kShardBucketBytes = 256 << 10;
inline constexpr int64_t kLeastPartBytes = 128 << 10;  // a message between hosts
inline constexpr int64_t kLeastBuckets = 4;  // of a rank: the last one's reduction is not hidden

inline constexpr int kMostReductions = 4;  // of buckets, under way at once in a rank
// Of whole updated weights, where a GPU's memory is gathered through its host: each takes a buffer
// of host memory.
inline constexpr int kMostGathers = 2;
// Buffers that the blocks' buckets use in turn while their gradients are whole, with sharded
// gradients and no deferred weight gradient.
inline constexpr int kGradientBuffers = 2;

// For gradients that are whole on each of `ranks` data-parallel ranks; all gradients of a rank take
// `gradient_bytes`. They lie in the rank's flat buffer anyway, so larger buckets take no memory.
int64_t bucket_bytes_of(const JobSpec& job, int64_t ranks, int64_t gradient_bytes);

// For gradients, and weights, sharded over `ranks`. Buckets that are whole at the same time take
// memory, at least that of the largest layer. So buckets do not grow beyond the largest layer.
int64_t shard_bucket_bytes_of(const JobSpec& job, int64_t ranks, int64_t largest_layer_bytes);

}  // namespace smp
