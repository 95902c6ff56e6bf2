#include <utility>

#include "layers/parameter_views.h"
#include "smp/plan/base/check.h"

namespace smp::layers {

void DeferredWeightGradients::run() {
  for (std::function<void()>& piece : pieces_) {
    piece();
    piece = nullptr;
  }
  pieces_.clear();
}

std::unique_ptr<Layer> make_layer(const ModelSpec& model, const model::LayerSpec& layer,
                                  LayerParameters parameters, kernels::TensorParallel group) {
  SMP_CHECK((group.communicator == nullptr) == (group.degree == 1));
  const ParameterViews views(model, layer, std::move(parameters));
  switch (layer.kind) {
    case model::LayerKind::kEmbedding: return make_embedding(model, views, group);
    case model::LayerKind::kBlock: return make_block(model, layer, views, group);
    case model::LayerKind::kCrossBlock: return make_cross_block(model, layer, views, group);
    case model::LayerKind::kHead: return make_head(model, views, group);
    case model::LayerKind::kOperators:
    case model::LayerKind::kLastOperators: return make_operator_list(model, layer, views, group);
    case model::LayerKind::kMoeBlock:
    case model::LayerKind::kMtpBlock: break;  // engine_rules.h refuses them
  }
  check_failed(__FILE__, __LINE__, "a kind of layer that the engine does not run");
}

}  // namespace smp::layers
