#pragma once

#include "update_rule.h"

// The arithmetic of SGD on flat ranges, one pass over memory, vectorised for the machine it runs
// on. Pure; safe from any thread.
namespace smp {

// w, m and g of one range; `scale` multiplies each gradient as it is read:
//   g += decay w;  m = momentum m + g;  w -= rate (nesterov ? g + momentum m : m)
// Without momentum there is no m, and w -= rate g.
struct SgdFactors {
  double scale = 1;
  double decay = 0;
  double momentum = 0;
  double rate = 0;
  bool nesterov = false;
};

// states: m, or none.
void sgd_update(const SgdFactors& factors, const UpdateRange<float>& range);
void sgd_update(const SgdFactors& factors, const UpdateRange<double>& range);

}  // namespace smp
