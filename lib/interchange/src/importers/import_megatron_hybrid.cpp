#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "importers/megatron_line.h"

// A hybrid of Mamba layers on a Megatron-LM command line. Defaults: megatron/training/arguments.py
// and megatron/core/ssm/mamba_mixer.py.
namespace smp::importers {

// Letters M, *, - and E are the layers, bars lie between two chunks of the pipeline.
void MegatronLine::hybrid() {
  const std::string_view flag =
      has("hybrid-layer-pattern") ? "hybrid-layer-pattern" : "hybrid-override-pattern";
  const auto given = reader_.text(flag);
  if (!given) return;
  std::string pattern;
  std::vector<int64_t> chunks = {0};
  for (const char letter : *given) {
    if (letter == '|') {
      chunks.push_back(0);
    } else if (std::string_view("M*-E").find(letter) == std::string_view::npos) {
      reader_.error(flag, fmt::format("--{} with '{}' is not supported: expected M, *, -, E, and | "
                                      "between chunks",
                                      flag, letter));
      return;
    } else {
      pattern += letter;
      ++chunks.back();
    }
  }
  set(flag, "model.layer_pattern", fmt::format("\"{}\"", pattern));
  const auto layers = static_cast<int64_t>(pattern.size());
  if (!has("num-layers")) {
    set(flag, "model.num_layers", layers);
  } else if (const auto said = whole("num-layers"); said && *said != layers) {
    reader_.error("num-layers",
                  fmt::format("--num-layers {}, but --{} has {} layers", *said, flag, layers));
  }
  hybrid_chunks_ = chunks.size() > 1 ? chunks : std::vector<int64_t>{};
  if (pattern.find('M') == std::string::npos) return;
  const int64_t width = whole("mamba-head-dim").value_or(64);
  set("mamba-head-dim", "model.mamba_head_dim", width);
  const auto heads = whole("mamba-num-heads");
  if (heads) {
    set("mamba-num-heads", "model.mamba_heads", *heads);
  } else if (const auto hidden = whole("hidden-size")) {
    set("mamba-num-heads", "model.mamba_heads", 2 * *hidden / width);
  }
  set("mamba-state-dim", "model.mamba_state_dim", whole("mamba-state-dim").value_or(128));
  set("mamba-num-groups", "model.mamba_groups", whole("mamba-num-groups").value_or(8));
}

// The division that the bars of a hybrid's pattern say.
void MegatronLine::hybrid_partition() {
  const auto chunks = static_cast<int64_t>(hybrid_chunks_.size());
  if (chunks == 0) return;
  const std::string_view flag =
      has("hybrid-layer-pattern") ? "hybrid-layer-pattern" : "hybrid-override-pattern";
  if (chunks % pipeline_ != 0 || std::ranges::count(hybrid_chunks_, 0) > 0) {
    reader_.error(flag, fmt::format("--{} has {} chunks, which {} stages cannot share", flag,
                                    chunks, pipeline_));
    return;
  }
  set(flag, "parallel.partition", fmt::format("[{}]", fmt::join(hybrid_chunks_, ", ")));
  if (chunks == pipeline_ || pipeline_ == 1) return;
  reader_.set("parallel.pipeline", "virtual", fmt::format("--{}", flag));
  set(flag, "parallel.virtual_pipeline_degree", chunks / pipeline_);
}

}  // namespace smp::importers
