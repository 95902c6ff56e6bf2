#include "program/layers/layers.h"
#include "program/layers/loss.h"
#include "program/layers/parts.h"

// Final norm, in an encoder_decoder with dropout behind it, projection to this rank's part of the
// vocabulary, cross-entropy. Schedules never defer the head's weight gradient: the logits' gradient
// is by far the largest tensor.
namespace smp::program {
namespace {

class Head {
 public:
  explicit Head(ProgramBuilder& builder)
      : builder_(builder),
        region_(builder, builder.call().kinds.embedding),
        norm_(norm_parts(builder, "norm")),
        weight_(builder.model().tied_embeddings ? builder.tied_parameter()
                                                : builder.parameter("weight")),
        bias_(builder.parameter("bias")),
        scale_(model::head_scale(builder.model())),
        loss_(builder, {.begin = mesh::part_begin(builder.model().vocab_size, region_.degree(),
                                                  region_.rank()),
                        .is_shared = region_.is_shared()}) {}

  void forward() {
    const Dim hidden{builder_.model().hidden_size, "hidden"};
    x_ = builder_.input("x", region_.own_tokens(hidden), builder_.dtype());
    const ValueId targets =
        builder_.batch("targets", {{builder_.call().tokens(), "tokens"}}, DType::kI64);
    const Normed normed = norm(builder_, norm_, x_, "norm");
    stats_ = normed.stats;
    ValueId normal = drop_in_place(builder_, normed.y, dropout());
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
    builder_.program().outputs = {loss_.forward(add_bias(builder_, logits, bias_), targets)};
    loss_gradient_ = builder_.output_gradient(builder_.program().outputs[0]);
  }

  std::vector<ValueId> backward() {
    ValueId factor = kNoValue;
    ValueId logits = loss_.backward(loss_gradient_, factor);
    if (bias_ != kNoValue && factor != kNoValue) {
      logits = scaled(builder_, logits, factor);
      factor = kNoValue;
    }
    const Region::Sum sum = region_.start_sum(
        input_gradient(builder_, logits, weight_, "d norm", {0, "hidden"}, scale_, factor),
        kBackwardLabel);
    bias_gradient(builder_, logits, bias_);
    const ValueId normal =
        drop_in_place(builder_, norm_again(builder_, norm_, x_, stats_, "norm"), dropout());
    weight_gradient(builder_, logits, region_.gathered(normal, kBackwardLabel), weight_, scale_,
                    factor);
    const ValueId dx = drop_in_place(builder_, region_.wait(sum), dropout());
    return {norm_backward(builder_, norm_, dx, x_, stats_, kNoValue, region_.splits_tokens(), "x"),
            kNoValue};
  }

 private:
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
  const double scale_;  // of what is projected
  CrossEntropy loss_;
  ValueId x_ = kNoValue, stats_ = kNoValue, loss_gradient_ = kNoValue;
};

}  // namespace

void build_head_forward(ProgramBuilder& builder) { Head(builder).forward(); }

void build_head(ProgramBuilder& builder) {
  Head head(builder);
  builder.open(Section::kForward);
  head.forward();
  builder.open(Section::kBackward);
  builder.program().input_gradients = head.backward();
  builder.open(Section::kDeferring);
  builder.program().deferred_input_gradients = head.backward();
}

}  // namespace smp::program
