#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/program/matrix_products.h"

// How long a product takes by either library of fp32 products on CPUs, as the user's cache has it
// (smp/plan/system/host_cache.h). Pure; any thread.
namespace smp::runinfo {

struct ProductTimes {
  program::SizedProduct product;
  double onednn_s = 0, torch_s = 0;

  double torch_speed() const { return onednn_s / torch_s; }  // over oneDNN's
};

// A line of JSON for each product.
std::string lines_of(const std::vector<ProductTimes>& times);
// Throws ConfigError where a line is not one of these, or no time from 1e-12 to 1e18 s.
std::vector<ProductTimes> read_product_times(std::string_view lines);

}  // namespace smp::runinfo
