#include "program/layers/qk_norms.h"

#include <algorithm>

namespace smp::program {
namespace {

constexpr std::string_view kNormsLabel = "tensor.qk_norms";

bool span_heads(const ModelSpec& model) {
  return model.qk_norm && model.qk_norm_over == QkNormOver::kAllHeads;
}

}  // namespace

QkNorms::QkNorms(ProgramBuilder& builder, const Region& region, const std::string& name)
    : builder_(builder), region_(region) {
  if (!span_heads(builder.model())) return;
  q_ = norm_parts(builder, name + ".q_norm");
  k_ = norm_parts(builder, name + ".k_norm");
}

QkNormAttributes QkNorms::attributes() const {
  const ModelSpec& model = builder_.model();
  const int64_t ranks = region_.degree();
  return {.q_cols = model.num_heads / ranks * model.head_dim,
          .k_cols = std::max<int64_t>(1, model.num_kv_heads / ranks) * model.head_dim,
          .ranks = ranks,
          .epsilon = model.norm_epsilon};
}

ValueId QkNorms::normed() {
  const ValueId y = builder_.made_like(builder_.value(packed_).name + " normed", packed_);
  builder_.add(OperationKind::kQkNorm, {packed_, squares_, q_.weight, k_.weight}, {y},
               attributes());
  return y;
}

ValueId QkNorms::forward(ValueId packed) {
  packed_ = packed;
  const Shape of_rows{builder_.value(packed).shape[0], {2, ""}};
  const ValueId own = builder_.made("squares of q and k", of_rows, builder_.wide_dtype());
  builder_.add(OperationKind::kQkSquares, {packed}, {own}, attributes());
  squares_ = region_.all_reduced(own, kNormsLabel);
  return normed();
}

ValueId QkNorms::again() { return normed(); }

ValueId QkNorms::backward(ValueId dy) {
  const ValueId own = builder_.made_like("d squares of q and k", squares_);
  builder_.add(OperationKind::kQkNormSums, {dy, packed_, squares_, q_.weight, k_.weight}, {own},
               attributes(), {builder_.gradient_of(q_.weight), builder_.gradient_of(k_.weight)});
  const ValueId sums = region_.all_reduced(own, kNormsLabel);
  const ValueId dx = builder_.over("d " + builder_.value(packed_).name, dy);
  builder_.add(OperationKind::kQkNormBackward, {dy, packed_, squares_, sums, q_.weight, k_.weight},
               {dx}, attributes());
  return dx;
}

}  // namespace smp::program
