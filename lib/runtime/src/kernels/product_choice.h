#pragma once

#include <vector>

#include "smp/runtime/kernels/product_libraries.h"

// Which library the process's fp32 products on CPUs are sent to. One choice for all of them, as
// device_table.cpp has one table. Any thread.
namespace smp::kernels {

// Below this oneDNN keeps a product: a measurement on a busy host is this far off.
inline constexpr double kLeastTorchSpeed = 1.25;

struct ProductChoice {
  ProductLibrary otherwise = ProductLibrary::kOnednn;
  std::vector<program::MatrixProduct> by_torch = {};  // sorted
};

// Torch's are the products of which it is so much faster that this is no chance; `products` are
// sorted, and have a speed each.
ProductChoice choice_of(const std::vector<program::SizedProduct>& products,
                        const std::vector<double>& torch_speeds);

// From now on; must not be called while layers compute, whose results it would change. Without it,
// and after {}, all products are oneDNN's.
void choose_products(ProductChoice choice);

// Always torch's own in a torch that was built without oneDNN.
ProductLibrary library_of(const program::MatrixProduct& product);

}  // namespace smp::kernels
