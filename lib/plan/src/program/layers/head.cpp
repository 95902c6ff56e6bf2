#include <fmt/format.h>

#include <string>
#include <vector>

#include "program/layers/layers.h"
#include "program/layers/loss.h"
#include "program/layers/parts.h"

// Final norm, in an encoder_decoder with dropout behind it, projection to this rank's part of the
// vocabulary, cross-entropy. Behind layers that predict further tokens the inputs are normed
// already, and each is projected and has a loss. Schedules never defer the head's weight gradient:
// the logits' gradient is by far the largest tensor.
namespace smp::program {
namespace {

class Head {
 public:
  // `further`: tokens behind the next one that have a loss.
  Head(ProgramBuilder& builder, int64_t further)
      : builder_(builder),
        region_(builder, builder.call().kinds.embedding),
        norm_(norm_parts(builder, "norm")),
        weight_(builder.model().tied_embeddings ? builder.tied_parameter()
                                                : builder.parameter("weight")),
        bias_(builder.parameter("bias")),
        scale_(model::head_scale(builder.model())),
        targets_of_(1 + builder.model().num_mtp_layers) {
    for (int64_t depth = 0; depth <= further; ++depth) {
      const double share =
          depth == 0 ? 1 : builder.model().mtp_loss_factor / static_cast<double>(further);
      projections_.push_back(
          {CrossEntropy(builder, {.begin = mesh::part_begin(builder.model().vocab_size,
                                                            region_.degree(), region_.rank()),
                                  .is_shared = region_.is_shared(),
                                  .first_target = depth * builder.call().tokens()}),
           share});
    }
  }

  void forward() {
    const Dim hidden{builder_.model().hidden_size, "hidden"};
    // The last layer hands on its own result first.
    for (auto one = projections_.rbegin(); one != projections_.rend(); ++one) {
      const auto depth = projections_.rend() - one - 1;
      const std::string name = has_norm() ? "x" : fmt::format("n{}", depth);
      one->x = builder_.input(name, region_.own_tokens(hidden), builder_.dtype());
    }
    const ValueId targets = builder_.batch(
        "targets", {{targets_of_ * builder_.call().tokens(), "tokens"}}, DType::kI64);
    for (Projection& one : projections_) {
      builder_.program().outputs.push_back(one.loss.forward(logits(one), targets));
    }
    loss_gradient_ = builder_.output_gradient(builder_.program().outputs[0]);
  }

  // Of the next token's loss, to which the others are added with their shares.
  std::vector<ValueId> backward() {
    std::vector<ValueId> gradients;
    for (auto one = projections_.rbegin(); one != projections_.rend(); ++one) {
      gradients.push_back(backward(*one));
    }
    gradients.push_back(kNoValue);  // of the targets
    return gradients;
  }

 private:
  struct Projection {
    CrossEntropy loss;
    double share = 1;  // of the loss
    ValueId x = kNoValue, stats = kNoValue;
  };
  bool has_norm() const { return norm_.weight != kNoValue; }

  ValueId logits(Projection& one) {
    ValueId normal = one.x;
    if (has_norm()) {
      const Normed normed = norm(builder_, norm_, one.x, "norm");
      one.stats = normed.stats;
      normal = drop_in_place(builder_, normed.y, dropout());
    }
    if (scale_ != 1) {
      const ValueId whole = normal;
      normal = builder_.over("norm scaled", whole);
      builder_.add(OperationKind::kScale, {whole, kNoValue}, {normal}, ProductAttributes{scale_});
    }
    normal = region_.gathered(normal, kForwardLabel);
    const Dim vocabulary{builder_.value(weight_).shape[0].size, "vocabulary", region_.degree()};
    const ValueId logits =
        builder_.made("logits", region_.all_tokens(vocabulary), builder_.dtype());
    builder_.add(OperationKind::kLogits, {normal, weight_}, {logits});
    return add_bias(builder_, logits, bias_);
  }

  ValueId backward(Projection& one) {
    ValueId factor = kNoValue;
    ValueId logits = one.loss.backward(loss_gradient_, factor);
    double scale = scale_ * one.share;
    if (bias_ != kNoValue && (factor != kNoValue || one.share != 1)) {
      logits = scaled(builder_, logits, factor, one.share);
      factor = kNoValue;
      scale = scale_;
    }
    const Region::Sum sum = region_.start_sum(
        input_gradient(builder_, logits, weight_, "d norm", {0, "hidden"}, scale, factor),
        kBackwardLabel);
    bias_gradient(builder_, logits, bias_);
    ValueId normal = one.x;
    if (has_norm()) {
      normal =
          drop_in_place(builder_, norm_again(builder_, norm_, one.x, one.stats, "norm"), dropout());
    }
    weight_gradient(builder_, logits, region_.gathered(normal, kBackwardLabel), weight_, scale,
                    factor);
    if (!has_norm()) return region_.wait(sum);
    const ValueId dx = drop_in_place(builder_, region_.wait(sum), dropout());
    return norm_backward(builder_, norm_, dx, one.x, one.stats, kNoValue, region_.splits_tokens(),
                         "x");
  }

  // Of the norm's result.
  DropoutAttributes dropout() const {
    DropoutAttributes dropout = hidden_dropout(builder_, region_, DropoutSite::kOutput);
    if (builder_.model().stack != Stack::kEncoderDecoder) dropout.share = 0;
    return dropout;
  }

  ProgramBuilder& builder_;
  const Region region_;
  const NormParts norm_;
  const ValueId weight_, bias_;
  const double scale_;                   // of what is projected
  const int64_t targets_of_;             // a token
  std::vector<Projection> projections_;  // for the next token, the one behind it, ...
  ValueId loss_gradient_ = kNoValue;
};

}  // namespace

void build_head_forward(ProgramBuilder& builder) { Head(builder, 0).forward(); }

void build_head(ProgramBuilder& builder) {
  Head head(builder, builder.model().num_mtp_layers);
  build_sections(builder, head);
}

}  // namespace smp::program
