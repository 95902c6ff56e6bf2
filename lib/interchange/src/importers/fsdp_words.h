#pragma once

#include <cstdint>
#include <string>

#include "importers/foreign_keys.h"

// How files say what FSDP shards: by the words of transformers' Trainer (`fsdp: full_shard
// auto_wrap offload`), which LLaMA-Factory and axolotl share, by a strategy of PyTorch's, or by
// reshard_after_forward of FSDP 2. Each function reports what a job cannot express.
namespace smp::importers {

struct FsdpSharding {
  std::string kind = "none";       // as parallel.sharding has it
  std::string key;                 // that says so
  std::string origin = "no fsdp";  // "fsdp = full_shard"
  bool hybrid = false;             // over the ranks of a host
  std::string offload_key;         // that moves shards to host memory; empty if none does
};

// The Trainer's key `fsdp`: blanks between words, or a list; true is full_shard. Without a strategy
// the Trainer shards parameters.
void read_trainers_fsdp(ForeignReader& reader, FsdpSharding& fsdp);

// The strategy under `key`, if it is there: a word in either case, PyTorch's number of it, or true
// (parameters are sharded) and false (gradients are).
void read_fsdp_strategy(ForeignReader& reader, const std::string& key, FsdpSharding& fsdp);

// Sets parallel.offload_parameters and parallel.offload_optimizer.
void set_fsdp_offload(ForeignReader& reader, const FsdpSharding& fsdp);

// Sets parallel.sharding and its degree: the ranks of a host, or all data-parallel ranks.
void set_fsdp_sharding(ForeignReader& reader, const FsdpSharding& fsdp,
                       const ImportContext& context, int64_t context_degree, int64_t tensor_degree,
                       int64_t pipeline_degree);

}  // namespace smp::importers
