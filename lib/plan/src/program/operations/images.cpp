#include "program/operations/rules.h"
#include "smp/plan/model/operators.h"

// Operators of lists of layers. A convolution is a product of patches: the inputs of each output
// pixel are copied side by side, as many samples at once as fill the product, which is then turned
// from [pixels, channels] to [channels, pixels].
namespace smp::program {
namespace {

struct Patches {
  explicit Patches(const PlacedOperation& p) : image(p.operation.as<ImageAttributes>()) {
    dtype = p.dtype(p.operation.in(0));
    batch = p.rows(p.operation.in(0));
    windows = image.out[1] * image.out[2];
    rows = model::samples_at_once(batch, windows) * windows;
    patch = image.in[0] * image.spec.kernel * image.spec.kernel;
    channels = image.out[0];
  }
  int64_t of_patches() const { return bytes_of(dtype) * rows * patch; }
  int64_t of_outputs() const { return bytes_of(dtype) * rows * channels; }
  double flops() const {
    return 2.0 * static_cast<double>(batch * windows) * static_cast<double>(channels * patch);
  }

  const ImageAttributes& image;
  DType dtype;
  int64_t batch, windows, rows, patch, channels;
};

// Scratch for `count` sums over an image: fp32 sums beside 16-bit elements.
int64_t sums_bytes(DType dtype, int64_t count) {
  return is_narrow(dtype) ? wide_bytes(dtype) * count : 0;
}

double convolution_flops(const PlacedOperation& p) { return Patches(p).flops(); }

int64_t forward_bytes(const PlacedOperation& p) {
  const Patches at(p);
  return at.of_patches() + at.of_outputs() +
         product_scratch(at.dtype, at.rows, at.patch, at.channels);
}
int64_t input_gradient_bytes(const PlacedOperation& p) {
  const Patches at(p);
  return sums_bytes(at.dtype, model::elements_of(at.image.in)) + at.of_outputs() + at.of_patches() +
         product_scratch(at.dtype, at.rows, at.channels, at.patch);
}
int64_t weight_gradient_bytes(const PlacedOperation& p) {
  const Patches at(p);
  return at.of_patches() + at.of_outputs() +
         weight_gradient_scratch(at.dtype, at.rows, at.channels, at.patch);
}

// For a channel of a sample. Windows overlap, so an element's gradient is a sum.
int64_t plane_sums(const PlacedOperation& p) {
  const auto& image = p.operation.as<ImageAttributes>();
  return sums_bytes(p.dtype(p.operation.in(0)), image.in[1] * image.in[2]);
}

}  // namespace

const OperationRules kConvolutionRules = {.name = "convolution",
                                          .kernel = KernelClass::kProduct,
                                          .inputs = "x weight bias?",
                                          .outputs = "y",
                                          .flops = convolution_flops,
                                          .scratch_bytes = forward_bytes};
const OperationRules kConvolutionInputGradientRules = {.name = "convolution, d input",
                                                       .kernel = KernelClass::kProduct,
                                                       .inputs = "dy weight",
                                                       .outputs = "dx",
                                                       .flops = convolution_flops,
                                                       .scratch_bytes = input_gradient_bytes};
// Adds to the gradients of weight and bias.
const OperationRules kConvolutionWeightGradientRules = {.name = "convolution, d weight",
                                                        .kernel = KernelClass::kProduct,
                                                        .inputs = "dy x",
                                                        .outputs = "",
                                                        .flops = convolution_flops,
                                                        .scratch_bytes = weight_gradient_bytes};
// A byte an element is kept: whether it was above 0.
const OperationRules kReluRules = {.name = "relu", .inputs = "x", .outputs = "y passes"};
const OperationRules kReluBackwardRules = {
    .name = "relu backward", .inputs = "dy passes", .outputs = "dx"};
const OperationRules kTanhRules = {.name = "tanh", .inputs = "x", .outputs = "y"};
const OperationRules kTanhBackwardRules = {
    .name = "tanh backward", .inputs = "x dy", .outputs = "dx"};
// A largest value's place is kept in 32 bits.
const OperationRules kMaxPoolRules = {.name = "max pool", .inputs = "x", .outputs = "y places"};
const OperationRules kMaxPoolBackwardRules = {.name = "max pool backward",
                                              .inputs = "dy places",
                                              .outputs = "dx",
                                              .scratch_bytes = plane_sums};
const OperationRules kMeanPoolRules = {.name = "mean pool", .inputs = "x", .outputs = "y"};
const OperationRules kMeanPoolBackwardRules = {
    .name = "mean pool backward", .inputs = "dy", .outputs = "dx", .scratch_bytes = plane_sums};
const OperationRules kReshapeRules = {
    .name = "reshape", .kernel = KernelClass::kView, .inputs = "x", .outputs = "y"};

}  // namespace smp::program
