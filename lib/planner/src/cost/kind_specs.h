#pragma once
#include <vector>
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
namespace smp::cost {
struct WeighedSpec { model::LayerSpec layer; double share = 1; };
inline std::vector<WeighedSpec> kind_specs(const JobSpec& job) {
  const ModelSpec& m = job.model;
  std::vector<WeighedSpec> specs;
  if (model::is_list(m)) {
    for (const model::LayerSpec& l : model::layers_of(m))
      specs.push_back({l, model::makes_loss(l.kind) ? 1 : 1 / static_cast<double>(m.num_layers)});
    return specs;
  }
  const auto add = [&](model::LayerKind kind, int64_t index, double share = 1) {
    specs.push_back({{kind, index, "", std::nullopt, 0, 0}, share});
  };
  add(model::LayerKind::kEmbedding, 0);
  if (model::is_hybrid(m)) {
    const double all = static_cast<double>(m.num_layers - model::letters(m, 'E'));
    for (const char letter : {'M', '*', '-', 'E'}) {
      const auto count = static_cast<double>(model::letters(m, letter));
      if (count == 0) continue;
      for (int64_t i = 0; i < m.num_layers; ++i) {
        if (model::layer_letter(m, i) != letter) continue;
        add(letter == 'E' ? model::LayerKind::kMoeBlock : model::LayerKind::kBlock, i + 1,
            letter == 'E' ? 1 : count / all);
        break;
      }
    }
  } else {
    bool dense = false, moe = false;
    for (int64_t i = 0; i < m.num_layers; ++i) {
      bool& done = model::has_experts(m, i) ? moe : dense;
      if (done) continue;
      done = true;
      add(&done == &moe ? model::LayerKind::kMoeBlock : model::LayerKind::kBlock, i + 1);
    }
    if (!dense) add(model::LayerKind::kBlock, 1);
  }
  if (m.decoder_layers > 0) add(model::LayerKind::kCrossBlock, m.num_layers + m.decoder_layers);
  add(model::LayerKind::kHead, m.num_layers + 1);
  return specs;
}
}  // namespace smp::cost
