#include "importers/fsdp_words.h"

#include <fmt/format.h>

#include <array>
#include <sstream>
#include <string_view>
#include <vector>

#include "importers/smp_dictionary.h"
#include "smp/plan/text/lower_case.h"

namespace smp::importers {
namespace {

constexpr const char* kFsdp = "fsdp";

struct FsdpStrategy {
  std::string_view word;
  std::string_view kind;
  bool hybrid;
};

// As torch.distributed.fsdp.ShardingStrategy numbers them from 1.
constexpr std::array kStrategies = {FsdpStrategy{"full_shard", "parameters", false},
                                    FsdpStrategy{"shard_grad_op", "gradients", false},
                                    FsdpStrategy{"no_shard", "none", false},
                                    FsdpStrategy{"hybrid_shard", "parameters", true},
                                    FsdpStrategy{"hybrid_shard_zero2", "gradients", true}};

// Whether the word is a strategy.
bool take_strategy(const std::string& key, const std::string& word, FsdpSharding& fsdp) {
  const std::string lower = text::lower_case(word);
  const std::string_view name = lower == "true"    ? "full_shard"
                                : lower == "false" ? "shard_grad_op"
                                                   : std::string_view(lower);
  for (size_t i = 0; i < kStrategies.size(); ++i) {
    const FsdpStrategy& strategy = kStrategies[i];
    if (name != strategy.word && name != fmt::format("{}", i + 1)) continue;
    fsdp.kind = strategy.kind;
    fsdp.hybrid = strategy.hybrid;
    fsdp.key = key;
    fsdp.origin = fmt::format("{} = {}", key, word);
    return true;
  }
  return false;
}

void refuse_word(ForeignReader& reader, const std::string& key, const std::string& word,
                 std::string_view supported) {
  reader.error(key, fmt::format("{}: {} is not supported; supported are {}", key,
                                text::quoted_for_message(word), supported));
}

std::vector<std::string> trainers_words(const text::YamlNode& node) {
  std::vector<std::string> words;
  std::istringstream blanks(node.text);
  for (std::string word; blanks >> word;) words.push_back(word);
  for (const text::YamlNode& item : node.items) words.push_back(item.text);
  return words;
}

}  // namespace

void read_trainers_fsdp(ForeignReader& reader, FsdpSharding& fsdp) {
  const text::YamlNode* node = reader.node(kFsdp);
  if (node == nullptr || bool_value(*node) == false) return;
  for (const std::string& word : trainers_words(*node)) {
    if (fsdp.key.empty()) {
      fsdp.kind = "parameters";
      fsdp.key = fsdp.origin = kFsdp;
    }
    if (word == "auto_wrap") continue;
    if (word == "offload") {
      fsdp.offload_key = kFsdp;
    } else if (!take_strategy(kFsdp, word, fsdp)) {
      refuse_word(reader, kFsdp, word,
                  "full_shard, shard_grad_op, hybrid_shard, no_shard, auto_wrap and offload");
    }
  }
}

void read_fsdp_strategy(ForeignReader& reader, const std::string& key, FsdpSharding& fsdp) {
  const auto word = reader.text(key);
  if (!word || take_strategy(key, *word, fsdp)) return;
  refuse_word(reader, key, *word, "full_shard, shard_grad_op, hybrid_shard and no_shard");
}

void set_fsdp_offload(ForeignReader& reader, const FsdpSharding& fsdp) {
  if (fsdp.offload_key.empty()) return;
  if (fsdp.kind != "parameters") {
    reader.error(fsdp.offload_key,
                 fmt::format("{}: smp offloads only sharded parameters, but {}: use full_shard, "
                             "hybrid_shard or reshard_after_forward: true",
                             fsdp.offload_key, fsdp.origin));
    return;
  }
  for (const char* path : {"parallel.offload_parameters", "parallel.offload_optimizer"}) {
    reader.set_by(fsdp.offload_key, path, std::string("true"));
  }
}

void set_fsdp_sharding(ForeignReader& reader, const FsdpSharding& fsdp,
                       const ImportContext& context, int64_t context_degree, int64_t tensor_degree,
                       int64_t pipeline_degree) {
  if (fsdp.kind == "none" && fsdp.key.empty()) {
    reader.assume_none("parallel.sharding", fsdp.origin);
    return;
  }
  if (!fsdp.hybrid) {
    set_shard_over_all(reader, fsdp.kind, context, context_degree, tensor_degree, pipeline_degree,
                       fsdp.origin, {}, !fsdp.offload_key.empty());
    return;
  }
  const auto each =
      context.processes_per_host ? context.processes_per_host : context.cluster_processes_per_host;
  if (!each) {
    reader.error(fsdp.key, fmt::format("{}: hybrid_shard shards over the ranks of a host: give "
                                       "--processes-per-host N",
                                       fsdp.key));
    return;
  }
  reader.set("parallel.sharding", fsdp.kind, fsdp.origin);
  reader.set("parallel.sharded_data_parallel_degree", fmt::format("{}", *each),
             "the ranks of a host");
}

}  // namespace smp::importers
