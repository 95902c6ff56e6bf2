#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/spec/plan.h"

// The parts that the writer and the reader of plan files share. A file is a comment, three header
// lines (version, bytes, hash) and the body. Bytes and hash are of the body, so a cut or edited
// file is detected before its content is used. Pure; safe from any thread.
namespace smp::planfile {

inline constexpr std::string_view kVersionKey = "smp_plan";
inline constexpr std::string_view kBytesKey = "body_bytes";
inline constexpr std::string_view kHashKey = "body_hash";

// "fnv1a-" and 16 hex digits: FNV-1a of 64 bits (Fowler, Noll, Vo). It detects edits; it is no
// signature.
std::string plan_hash(std::string_view body);

// Keys of the job that are still open, by path. A plan has none. (Where auto has one meaning that
// follows from other keys, auto may stand: recompute_layers, accumulate_gradients_in_fp32,
// data_collectives, bucket_bytes, shard_bucket_bytes, partition.)
std::vector<std::string> open_keys(const JobSpec& job);

}  // namespace smp::planfile
