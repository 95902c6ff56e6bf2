#pragma once

#include <vector>

#include "smp/plan/program/matrix_products.h"

namespace smp {
struct Plan;
}

namespace smp::layout {

// The products with matrices in all layers of a plan's model, on any of its ranks: each once, with
// the most rows, sorted. So every rank has the same list.
std::vector<program::SizedProduct> plan_products(const Plan& plan);

}  // namespace smp::layout
