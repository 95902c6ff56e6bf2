#pragma once

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "layers_support.h"

namespace smp::test {

struct GradientError {
  std::string element;  // of which weight
  double difference = 0;
};

// The largest difference between the weights' gradients of a run of the batch and central
// differences of its loss, over every few elements of each weight. With step e the error is
// e^2 f''' / 6, and rounding adds 1e-16 / e; both are near 1e-11 at e = 5e-6. Dropout's factors and
// scores that are not scaled make the third derivative large.
inline GradientError largest_gradient_error(ModelOnRank& rank, const std::vector<at::Tensor>& batch,
                                            const std::function<double()>& loss) {
  constexpr double kStep = 5e-6;
  rank.run(batch, true);
  const at::NoGradGuard no_grad;
  GradientError largest;
  NamedTensors gradients;
  for (const auto& [name, gradient] : rank.gradients()) gradients[name] = gradient.clone();
  for (const auto& [name, weight] : rank.weights()) {
    if (name.ends_with("correction_bias")) continue;  // has no gradient of the loss
    const at::Tensor gradient = gradients.at(name);
    const int64_t stride = std::max<int64_t>(1, weight.numel() / 12);
    for (int64_t i = 0; i < weight.numel(); i += stride) {
      double& element = weight.data_ptr<double>()[i];
      const double kept = element;
      element = kept + kStep;
      const double above = loss();
      element = kept - kStep;
      const double below = loss();
      element = kept;
      const double difference =
          std::abs(gradient.data_ptr<double>()[i] - (above - below) / (2 * kStep));
      if (difference <= largest.difference) continue;
      largest = {name + " element " + std::to_string(i), difference};
      if (std::isnan(difference)) return largest;
    }
  }
  return largest;
}

inline GradientError largest_gradient_error(ModelOnRank& rank,
                                            const std::vector<at::Tensor>& batch) {
  return largest_gradient_error(rank, batch, [&] { return rank.run(batch, false); });
}

}  // namespace smp::test
