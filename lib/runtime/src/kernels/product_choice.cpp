#include "kernels/product_choice.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "kernels/cpu_functions.h"
#include "smp/plan/base/check.h"

namespace smp::kernels {
namespace {

// Ranks that are threads of one process choose one after the other.
std::atomic<std::shared_ptr<const ProductChoice>> chosen;

}  // namespace

ProductChoice choice_of(const std::vector<program::SizedProduct>& products,
                        const std::vector<double>& torch_speeds) {
  ProductChoice choice;
  for (size_t i = 0; i < products.size(); ++i) {
    if (torch_speeds.at(i) >= kLeastTorchSpeed) choice.by_torch.push_back(products[i].matrix);
  }
  return choice;
}

void choose_products(ProductChoice choice) {
  SMP_CHECK(std::is_sorted(choice.by_torch.begin(), choice.by_torch.end()));
  chosen = std::make_shared<const ProductChoice>(std::move(choice));
}

ProductLibrary library_of(const program::MatrixProduct& product) {
  if (!has_onednn_product()) return ProductLibrary::kTorch;
  const std::shared_ptr<const ProductChoice> choice = chosen;
  if (choice == nullptr) return ProductLibrary::kOnednn;
  const auto& by_torch = choice->by_torch;
  return std::binary_search(by_torch.begin(), by_torch.end(), product) ? ProductLibrary::kTorch
                                                                       : choice->otherwise;
}

}  // namespace smp::kernels
