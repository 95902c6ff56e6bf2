#pragma once

#include <functional>
#include <vector>

#include "smp/plan/runinfo/product_times.h"
#include "smp/runtime/kernels/product_libraries.h"

// Both libraries' times of fp32 products on this CPU, in so little time that a run can begin with
// it.
namespace smp::kernels {

inline constexpr double kRaceSeconds = 0.08;

// The product that is timed for another one: a large one's rates are those of a part of it that a
// core computes in about 1 ms.
program::SizedProduct timed_for(const program::SizedProduct& product, int threads);

// Computes the product once, and returns the seconds that it took.
using TimeProduct = std::function<double(const program::SizedProduct&, ProductLibrary)>;

// Times each product by both libraries in turn: once to warm up and twice, one product after the
// other, then all of them in further rounds; until `seconds` are over. A product that was not timed
// twice by both is not in the result. The least times count: others of the host only add.
std::vector<runinfo::ProductTimes> race_products(const std::vector<program::SizedProduct>& products,
                                                 double seconds, const TimeProduct& time);

// Of this thread, with as many of torch's threads as it has. Its memory counts for no rank.
std::vector<runinfo::ProductTimes> race_products_here(
    const std::vector<program::SizedProduct>& products, double seconds);

}  // namespace smp::kernels
