#include <utility>

#include "layers/parameter_views.h"
#include "smp/plan/check.h"

namespace smp {

void WeightWork::run() {
  for (std::function<void()>& piece : pieces_) {
    piece();
    piece = nullptr;
  }
  pieces_.clear();
}

std::unique_ptr<Layer> make_layer(const ModelSpec& model, const LayerSpec& layer,
                                  LayerParameters parameters, TensorParallel group) {
  SMP_CHECK((group.communicator == nullptr) == (group.degree == 1));
  const ParameterViews views(model, layer, std::move(parameters));
  switch (layer.kind) {
    case LayerKind::kEmbedding: return make_embedding(model, views, group);
    case LayerKind::kGpt2Block:
    case LayerKind::kLlamaBlock:
    case LayerKind::kBlock: return make_block(model, layer, views, group);
    case LayerKind::kCrossBlock: return make_cross_block(model, layer, views, group);
    case LayerKind::kHead: return make_head(model, views, group);
    case LayerKind::kOperators:
    case LayerKind::kLastOperators: return make_operator_list(model, layer, views, group);
    case LayerKind::kMoeBlock:
    case LayerKind::kMtpBlock: break;  // engine_rules.h refuses them
  }
  check_failed(__FILE__, __LINE__, "a kind of layer that the engine does not run");
}

}  // namespace smp
