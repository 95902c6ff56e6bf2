#include "layers/frame.h"

#include <algorithm>

#include "smp/plan/base/check.h"

namespace smp::layers {

void Frame::run(program::Section section, bool saves) {
  saves_ = saves;
  const bool evaluates = section == program::Section::kForward && !saves;
  const auto& freed =
      evaluates ? prepared_.freed_in_evaluation : prepared_.freed[static_cast<int>(section)];
  const std::vector<program::Operation>& operations = prepared_.program.section(section);
  for (size_t i = 0; i < operations.size(); ++i) {
    operation_ = &operations[i];
    kernel_of(operation_->kind)(*this);
    for (const program::ValueId id : freed[i]) slot(id).reset();
  }
}

void Frame::wait(program::ValueId id) {
  const auto found = std::find_if(works_.begin(), works_.end(),
                                  [&](const auto& work) { return work.first == id; });
  SMP_CHECK(found != works_.end());
  found->second->wait();
  works_.erase(found);
}

}  // namespace smp::layers
