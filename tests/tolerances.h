#pragma once

// Every tolerance of the tests, in one table. Relative unless the name says absolute.
namespace smp::tolerance {

// A layout against one rank, 50 steps: losses step by step, weights tensor by tensor by norm.
struct Parity {
  double loss;
  double grad_norm;
  double weight;
  // The true gradient of the keys' biases is zero (softmax does not change when all scores of a
  // query move together), so Adam divides rounding noise by rounding noise there.
  double key_bias_absolute;
};
inline constexpr Parity kParityF64{1e-12, 1e-12, 1e-12, 1e-12};
inline constexpr Parity kParityF32{1e-4, 1e-3, 1e-4, 1e-2};

// The losses of a run of 16-bit elements that another layout resumes: its sums over tensor ranks
// and microbatches are rounded elsewhere, by bf16's unit roundoff.
inline constexpr double kResumedNarrowLoss = 0x1p-8;

// The layers against Hugging Face's on the same weights (scripts/make-golden-huggingface): the
// loss, each gradient and each log-probability, the latter two absolute.
inline constexpr double kHuggingFaceF64 = 1e-10;
inline constexpr double kHuggingFaceF32 = 1e-5;

// Gradients against central differences with a step near 1e-5, absolute: of the model's loss, and
// of a weighted sum of one layer's outputs, which is larger.
inline constexpr double kCentralDifferenceOfLoss = 2e-9;
inline constexpr double kCentralDifference = 1e-7;
// The mean over microbatches against the whole batch: loss, gradients.
inline constexpr double kMicrobatchLoss = 1e-13;
inline constexpr double kMicrobatchGradient = 1e-12;
// fp32 against fp64: loss, gradients.
inline constexpr double kF32Loss = 1e-6;
inline constexpr double kF32Gradient = 2e-5;
// Tensor ranks against one, fp64: loss, and gradients against the largest of each.
inline constexpr double kTensorParallel = 1e-12;

// Our own kernels against double: absolute per term of a product of numbers below 1, relative for
// GELU, units in the last place for e^x.
inline constexpr double kProductF32 = 1e-6;
inline constexpr double kProductF64 = 1e-14;
inline constexpr double kGelu = 1e-6;
inline constexpr double kExponentialUlps = 2.0;
// Ring attention against attention over whole samples: each result and gradient by its largest.
// Between ranks prepared keys are rounded to 16 bits, which whole attention does not do; scores
// near 4 carry that error into the exponentials.
inline constexpr double kRingAttentionF64 = 1e-12;
inline constexpr double kRingAttentionF32 = 2e-6;
inline constexpr double kRingAttentionBf16 = 8 * 0x1p-8;
inline constexpr double kRingAttentionFp16 = 8 * 0x1p-11;
// The CUDA kernels' bodies on host threads against the CPU's loops, fp64.
inline constexpr double kDeviceBodiesF64 = 1e-12;
// A GPU's functions on host threads against the CPU's: a model's loss and gradients. In fp32 both
// round; of 16-bit elements about ten tensors lie between a gradient and the loss.
inline constexpr double kDeviceFunctionsF64 = 1e-12;
inline constexpr double kDeviceFunctionsF32 = 1e-5;
inline constexpr double kDeviceFunctionsBf16 = 10 * 0x1p-8;

// Predicted against counted peak bytes of a rank; model states are exact.
inline constexpr double kPeakBytes = 0.05;

}  // namespace smp::tolerance
