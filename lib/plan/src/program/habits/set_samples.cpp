#include <cstring>
#include <variant>

#include "smp/plan/program/habits.h"

namespace smp::program {
namespace {

// Whether a dimension counts what a microbatch has in proportion to its samples.
bool counts_samples(const Value& value) {
  if (value.shape.empty() || value.role == Role::kParameter || value.role == Role::kGradient) {
    return false;
  }
  for (const char* name : {"tokens", "rows", "samples", "heads", "bytes"}) {
    if (std::strcmp(value.shape.front().name, name) == 0) return true;
  }
  return false;
}

}  // namespace

void set_samples(LayerProgram& program, int64_t from, int64_t to) {
  const auto scale = [&](int64_t& count) { count = count / from * to; };
  const double ratio = static_cast<double>(to) / static_cast<double>(from);
  for (Value& value : program.values) {
    if (counts_samples(value)) scale(value.shape.front().size);
  }
  for (std::vector<Operation>& section : program.sections) {
    for (Operation& operation : section) {
      if (operation.scratch_bytes > 0) scale(operation.scratch_bytes);
      if (auto* attention = std::get_if<AttentionAttributes>(&operation.attributes)) {
        scale(attention->batch);
      } else if (auto* exchange = std::get_if<ExchangeAttributes>(&operation.attributes)) {
        scale(exchange->batch);
      } else if (auto* experts = std::get_if<ExpertAttributes>(&operation.attributes)) {
        scale(experts->tokens);
        experts->expected_rows *= ratio;
      } else if (auto* scan = std::get_if<ScanAttributes>(&operation.attributes)) {
        scan->flops *= ratio;
      }
    }
  }
}

}  // namespace smp::program
