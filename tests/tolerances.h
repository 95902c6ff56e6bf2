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

// Predicted against counted peak bytes of a rank; model states are exact.
inline constexpr double kPeakBytes = 0.10;

}  // namespace smp::tolerance
