#include <functional>
#include <utility>

#include "program/layers/layers.h"
#include "program/layers/loss.h"
#include "program/layers/parts.h"
#include "smp/plan/base/check.h"

// A layer of a list model: its operators in order. The last layer also computes the mean
// cross-entropy of the batch. Where a backward needs a factor it keeps the input, never the output:
// that is the next layer's.
namespace smp::program {
namespace {

Shape batch_of(const model::LayerCall& call, const SampleShape& sample) {
  static constexpr const char* kImage[] = {"channels", "height", "width"};
  Shape shape{{call.micro_batch, "samples"}};
  for (size_t i = 0; i < sample.size(); ++i) {
    shape.push_back({sample[i], sample.size() == 1 ? "features" : kImage[i]});
  }
  return shape;
}

class OperatorList {
 public:
  explicit OperatorList(ProgramBuilder& builder)
      : builder_(builder),
        is_first_(builder.layer().index == 0),
        makes_loss_(model::makes_loss(builder.layer().kind)),
        place_{builder.call().tensor_degree, builder.call().tensor_rank},
        operators_(model::operators_of(builder.model(), builder.layer(), place_)),
        loss_(builder, loss_attributes()) {}

  void forward() {
    const Shape shape = batch_of(builder_.call(), read_shape());
    x_ = is_first_ ? builder_.batch("images", shape, builder_.dtype())
                   : builder_.input("x", shape, builder_.dtype());
    bool reads_batch = is_first_;  // or a view of it
    for (const model::PlacedOperator& placed : operators_) {
      if (placed.gathers && place_.degree > 1) gather(placed);
      wants_gradient_ = !reads_batch;
      apply(placed);
      reads_batch = reads_batch && placed.spec.kind == OperatorKind::kFlatten;
    }
    if (makes_loss_) {
      const ValueId labels =
          builder_.batch("labels", {{builder_.call().micro_batch, "samples"}}, DType::kI64);
      x_ = loss_.forward(x_, labels);
    }
    builder_.program().outputs = {x_};
    output_gradient_ = builder_.output_gradient(x_);
  }

  std::vector<ValueId> backward() {
    ValueId gradient = output_gradient_;
    if (makes_loss_) {
      ValueId factor = kNoValue;
      gradient = loss_.backward(output_gradient_, factor);
      if (factor != kNoValue) gradient = scaled(builder_, gradient, factor);
    }
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) gradient = (*step)(gradient);
    std::vector<ValueId> gradients{is_first_ ? kNoValue : gradient};
    if (makes_loss_) gradients.push_back(kNoValue);
    return gradients;
  }

 private:
  // From the gradient of an operator's output to that of its input.
  using Step = std::function<ValueId(ValueId)>;

  SampleShape read_shape() const {
    const model::PlacedOperator& first = operators_.front();
    if (!first.gathers || place_.degree == 1) return first.in;
    return {first.in_cut.size(place_)};
  }

  LossAttributes loss_attributes() const {
    const model::ChannelCut& logits = operators_.back().out_cut;
    return {.begin = logits.is_cut() ? logits.begin(place_) : 0,
            .is_shared = logits.is_cut() && place_.degree > 1,
            .counts_correct = true};
  }

  // Whether x_ is this layer's own, so that an operator may overwrite it.
  bool is_own() const { return builder_.value(builder_.value(x_).memory).role == Role::kResult; }
  ValueId output(const model::PlacedOperator& placed) {
    return builder_.made(std::string(model::rules_of(placed.spec.kind).type),
                         batch_of(builder_.call(), placed.out), builder_.dtype());
  }
  ValueId output_in_place(const model::PlacedOperator& placed) {
    if (!is_own()) return output(placed);
    return builder_.over(std::string(model::rules_of(placed.spec.kind).type), x_);
  }

  void apply(const model::PlacedOperator& placed) {
    switch (placed.spec.kind) {
      case OperatorKind::kConv2d: return convolution(placed);
      case OperatorKind::kLinear: return linear(placed);
      case OperatorKind::kRelu: return relu(placed);
      case OperatorKind::kGelu: return gelu(placed);
      case OperatorKind::kTanh: return tanh(placed);
      case OperatorKind::kMaxPool2d: return max_pool(placed);
      case OperatorKind::kAvgPool2d:
      case OperatorKind::kAdaptiveAvgPool2d: return mean_pool(placed);
      case OperatorKind::kFlatten: return flatten(placed);
      case OperatorKind::kDropout: return dropout(placed);
      case OperatorKind::kLayerNorm:
      case OperatorKind::kRmsNorm: return feature_norm(placed);
    }
    check_failed(__FILE__, __LINE__, "unknown operator");
  }

  // A matrix that is cut by its inputs gives a sum behind it; one that is cut by its outputs, a sum
  // of the gradients before it. One rank adds the bias to a sum.
  struct Matrix {
    ValueId weight, bias, added_bias;
    Region before, behind;
  };
  Matrix matrix(const model::PlacedOperator& placed) {
    const bool by_inputs = placed.matrix_cut == model::MatrixCut::kInputs;
    const ValueId bias = builder_.parameter("bias");
    const Region behind(builder_, by_inputs);
    return {builder_.parameter("weight"), bias, behind.rank() == 0 ? bias : kNoValue,
            Region(builder_, !by_inputs), behind};
  }

  void convolution(const model::PlacedOperator& placed) {
    const Matrix matrix = this->matrix(placed);
    const ImageAttributes image{placed.spec, placed.in, placed.out};
    const ValueId x = x_, y = output(placed);
    builder_.add(OperationKind::kConvolution, {x, matrix.weight, matrix.added_bias}, {y}, image);
    x_ = matrix.behind.summed(y, kForwardLabel);
    steps_.push_back([this, matrix, image, x, wanted = wants_gradient_](ValueId dy) {
      Region::Sum sum;
      if (wanted) {
        const ValueId dx = builder_.made_like("d " + builder_.value(x).name, x);
        builder_.add(OperationKind::kConvolutionInputGradient, {dy, matrix.weight}, {dx}, image);
        sum = matrix.before.start_sum(dx, kBackwardLabel);
      }
      weights([&] {
        builder_.add(OperationKind::kConvolutionWeightGradient, {dy, x}, {}, image,
                     {builder_.gradient_of(matrix.weight), builder_.gradient_of(matrix.bias)});
      });
      return wanted ? matrix.before.wait(sum) : kNoValue;
    });
  }

  void linear(const model::PlacedOperator& placed) {
    const Matrix matrix = this->matrix(placed);
    const ValueId x = x_;
    const ValueId y = product(builder_, x, matrix.weight, "linear", {0, "features"});
    x_ = matrix.behind.summed(add_bias(builder_, y, matrix.added_bias), kForwardLabel);
    steps_.push_back([this, matrix, x, wanted = wants_gradient_](ValueId dy) {
      Region::Sum sum;
      if (wanted) {
        sum = matrix.before.start_sum(
            input_gradient(builder_, dy, matrix.weight, "d linear", {0, "features"}),
            kBackwardLabel);
      }
      bias_gradient(builder_, dy, matrix.bias);
      weights([&] { weight_gradient(builder_, dy, x, matrix.weight); });
      return wanted ? matrix.before.wait(sum) : kNoValue;
    });
  }

  void relu(const model::PlacedOperator& placed) {
    const ValueId y = output_in_place(placed);
    const ValueId passes =
        builder_.made("passes", {{builder_.value(x_).elements(), "elements"}}, DType::kU8);
    builder_.add(OperationKind::kRelu, {x_}, {y, passes});
    x_ = y;
    steps_.push_back([this, passes](ValueId dy) {
      const ValueId dx = builder_.over("d " + builder_.value(dy).name, dy);
      builder_.add(OperationKind::kReluBackward, {dy, passes}, {dx});
      return dx;
    });
  }

  void gelu(const model::PlacedOperator& placed) {
    const ValueId x = x_, y = output(placed);
    const ActivationAttributes activation{ActivationKind::kGelu, false};
    builder_.add(OperationKind::kActivation, {x, kNoValue}, {y}, activation);
    x_ = y;
    steps_.push_back([this, x, activation](ValueId dy) {
      const ValueId dx = builder_.over("d gelu", dy);
      const ValueId again = builder_.over("gelu", x);  // which nobody reads any more
      builder_.add(OperationKind::kActivationBackward, {x, kNoValue, dy}, {dx, again}, activation);
      return dx;
    });
  }

  void tanh(const model::PlacedOperator& placed) {
    const ValueId x = x_, y = output(placed);
    builder_.add(OperationKind::kTanh, {x}, {y});
    x_ = y;
    steps_.push_back([this, x](ValueId dy) {
      const ValueId dx = builder_.over("d tanh", dy);
      builder_.add(OperationKind::kTanhBackward, {x, dy}, {dx});
      return dx;
    });
  }

  void max_pool(const model::PlacedOperator& placed) {
    const ImageAttributes image{placed.spec, placed.in, placed.out};
    const ValueId y = output(placed);
    const ValueId places = builder_.made("places", builder_.value(y).shape, DType::kI32);
    builder_.add(OperationKind::kMaxPool, {x_}, {y, places}, image);
    pool_backward(OperationKind::kMaxPoolBackward, image, places);
    x_ = y;
  }

  void mean_pool(const model::PlacedOperator& placed) {
    const ImageAttributes image{placed.spec, placed.in, placed.out};
    const ValueId y = output(placed);
    builder_.add(OperationKind::kMeanPool, {x_}, {y}, image);
    pool_backward(OperationKind::kMeanPoolBackward, image, kNoValue);
    x_ = y;
  }

  void pool_backward(OperationKind kind, const ImageAttributes& image, ValueId places) {
    steps_.push_back([this, kind, image, places, x = x_, wanted = wants_gradient_](ValueId dy) {
      if (!wanted) return kNoValue;
      const ValueId dx = builder_.made_like("d " + builder_.value(x).name, x);
      std::vector<ValueId> operands{dy};
      if (places != kNoValue) operands.push_back(places);
      builder_.add(kind, operands, {dx}, image);
      return dx;
    });
  }

  ValueId reshaped(ValueId x, Shape shape) {
    const ValueId y = builder_.over(builder_.value(x).name, x);
    builder_.program().values[static_cast<size_t>(y)].shape = std::move(shape);
    builder_.add(OperationKind::kReshape, {x}, {y});
    return y;
  }
  void flatten(const model::PlacedOperator& placed) {
    const Shape before = builder_.value(x_).shape;
    x_ = reshaped(x_, batch_of(builder_.call(), placed.out));
    steps_.push_back(
        [this, before](ValueId dy) { return dy == kNoValue ? kNoValue : reshaped(dy, before); });
  }

  // Which elements go is a function of their place, the sample and the step: nothing is kept.
  void dropout(const model::PlacedOperator& placed) {
    const DropoutAttributes attributes{
        .share = placed.spec.p,
        .layer = placed.index,
        .first_col = placed.in_cut.is_cut() ? placed.in_cut.begin(place_) : 0};
    const ValueId y = output_in_place(placed);
    builder_.add(OperationKind::kDrop, {x_}, {y}, attributes);
    x_ = y;
    steps_.push_back([this, attributes](ValueId dy) {
      const ValueId dx = builder_.over("d dropout", dy);
      builder_.add(OperationKind::kDrop, {dy}, {dx}, attributes);
      return dx;
    });
  }

  void feature_norm(const model::PlacedOperator& placed) {
    const std::string name = std::to_string(placed.index);
    const NormParts parts{
        builder_.parameter(name + ".weight"),
        builder_.parameter(name + ".bias"),
        {placed.spec.kind == OperatorKind::kLayerNorm, builder_.model().norm_epsilon}};
    const ValueId x = x_;
    const Normed normed = norm(builder_, parts, x, "norm");
    x_ = normed.y;
    steps_.push_back([this, parts, x, stats = normed.stats](ValueId dy) {
      return norm_backward(builder_, parts, dy, x, stats, kNoValue, false, builder_.value(x).name);
    });
  }

  // Channels that the tensor ranks share, ahead of an operator that reads all. Of the gradient each
  // rank takes its own: it is the same on all of them.
  void gather(const model::PlacedOperator& placed) {
    const ChannelAttributes channels{placed.in_cut, place_};
    const ValueId own = x_;
    x_ = builder_.made(builder_.value(own).name + " of all ranks",
                       batch_of(builder_.call(), {placed.in_cut.size({})}), builder_.dtype());
    builder_.add(OperationKind::kGatherChannels, {own}, {x_}, channels);
    steps_.push_back([this, own, channels](ValueId dy) {
      const ValueId dx = builder_.made_like("d " + builder_.value(own).name, own);
      builder_.add(OperationKind::kOwnChannels, {dy}, {dx}, channels);
      return dx;
    });
  }

  // The schedules never defer the weights' gradients of the layer that makes the loss.
  template <typename Body>
  void weights(const Body& body) {
    if (makes_loss_) return body();
    builder_.weights(body);
  }

  ProgramBuilder& builder_;
  const bool is_first_, makes_loss_;
  const model::TensorPlace place_;
  const std::vector<model::PlacedOperator> operators_;
  CrossEntropy loss_;
  bool wants_gradient_ = false;  // of what the operator reads; the batch needs none
  std::vector<Step> steps_;
  ValueId x_ = kNoValue, output_gradient_ = kNoValue;
};

}  // namespace

void build_operators_forward(ProgramBuilder& builder) { OperatorList(builder).forward(); }

void build_operators(ProgramBuilder& builder) {
  OperatorList list(builder);
  build_sections(builder, list);
}

}  // namespace smp::program
