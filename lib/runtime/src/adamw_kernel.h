#pragma once

#include "update_rule.h"

// The arithmetic of AdamW on flat ranges, one pass over memory, vectorised for the machine it
// runs on. Pure; safe from any thread.
namespace smp {

// w, m, v and g of one range; `scale` multiplies each gradient as it is read:
//   m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
//   w = keep w - rate m / (sqrt(v) inverse_root + epsilon)
struct AdamWFactors {
  double scale = 1;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double keep = 1;          // 1 - learning rate * weight decay
  double rate = 0;          // learning rate / (1 - beta1^t)
  double inverse_root = 1;  // 1 / sqrt(1 - beta2^t)
};

// states: m, v.
void adamw_update(const AdamWFactors& factors, const UpdateRange<float>& range);
void adamw_update(const AdamWFactors& factors, const UpdateRange<double>& range);

}  // namespace smp
