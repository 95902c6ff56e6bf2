#include "layers/parameter_views.h"

#include <utility>

#include "kernels/element_types.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
ParameterViews::ParameterViews(const ModelSpec& model, const model::LayerSpec& layer,
                               LayerParameters parameters)
    : parameters_(std::move(parameters)) {
  for (const model::ParameterSpec& spec : model::parameters_of(model, layer)) {
    SMP_CHECK(spec.name.starts_with(layer.name + "."));
    names_.push_back(spec.name.substr(layer.name.size() + 1));
  }
  const bool tied = model::reuses_embedding(model, layer);
  SMP_CHECK_EQ(parameters_.weights.size(), names_.size() + (tied ? 1 : 0));
  SMP_CHECK_EQ(parameters_.gradients.size(), parameters_.weights.size());
  for (size_t i = 0; i < parameters_.weights.size(); ++i) {
    const at::Tensor& weight = parameters_.weights[i];
    const at::Tensor& gradient = parameters_.gradients[i];
    SMP_CHECK(weight.is_contiguous() && gradient.is_contiguous());
    SMP_CHECK(weight.sizes() == gradient.sizes());
    SMP_CHECK(weight.is_floating_point());
    SMP_CHECK(gradient.scalar_type() ==
              (kernels::is_narrow(weight) ? at::kFloat : weight.scalar_type()));
    SMP_CHECK(weight.device() == gradient.device());
  }
}

int ParameterViews::index_of(const std::string& name) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name) return static_cast<int>(i);
  }
  return -1;
}

Parameter ParameterViews::joined(const std::string& first, const std::string& last) const {
  const int begin = index_of(first);
  SMP_CHECK(begin >= 0);
  const int end = index_of(last) + 1;
  SMP_CHECK(end > begin);
  const auto join = [&](const std::vector<at::Tensor>& views) {
    int64_t rows = 0;
    const char* expected = static_cast<const char*>(views[begin].data_ptr());
    for (int i = begin; i < end; ++i) {
      SMP_CHECK(views[i].data_ptr() == expected);  // neighbours in memory
      expected += views[i].nbytes();
      rows += views[i].size(0);
    }
    std::vector<int64_t> sizes = views[begin].sizes().vec();
    sizes[0] = rows;
    return views[begin].as_strided(sizes, views[begin].strides());
  };
  return {join(parameters_.weights), join(parameters_.gradients)};
}

Parameter ParameterViews::tied() const {
  SMP_CHECK(parameters_.weights.size() == names_.size() + 1);
  return {parameters_.weights.back(), parameters_.gradients.back()};
}

DType ParameterViews::dtype() const {
  return ledger::dtype_of(parameters_.weights.at(0).scalar_type());
}

at::Device ParameterViews::device() const { return parameters_.weights.at(0).device(); }

}  // namespace smp::layers
