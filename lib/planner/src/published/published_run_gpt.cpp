#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "published/published_run.h"
#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/jobfile/model_table.h"

// Rows that publish no more of a GPT than its number of parameters.
namespace smp::published {
namespace {

// The GPT of the table whose published size is nearest to `billions`.
const jobfile::NamedModel& nearest_gpt(double billions) {
  const jobfile::NamedModel* nearest = nullptr;
  double least = 0;
  for (const jobfile::NamedModel& model : jobfile::named_models()) {
    if (!model.name.starts_with("gpt-") && !model.name.starts_with("gpt3-") &&
        !model.name.starts_with("gpt2-")) {
      continue;
    }
    if (model.name.starts_with("gpt-oss") || model.name.starts_with("gpt-neox")) continue;
    const double distance =
        std::abs(std::log(jobfile::published_parameters(model) * 1e-9 / std::max(billions, 1e-3)));
    if (nearest == nullptr || distance < least) {
      nearest = &model;
      least = distance;
    }
  }
  return *nearest;
}

}  // namespace

// A GPT of a size alone is the nearest one in the table within a tenth. Else it has that one's
// width, and as many layers as that leaves (12 h^2 parameters each), the same number on each stage.
void size_gpt(RunCells& cells, ModelSpec& model, int64_t stages) {
  constexpr double kAlike = 0.1;
  const double billions = cells.number("params_b").value_or(0);
  const jobfile::NamedModel& near = nearest_gpt(billions);
  const ModelSpec gpt = jobfile::spec_of(near).model;
  const bool alike = std::abs(jobfile::published_parameters(near) * 1e-9 / billions - 1) <= kAlike;
  const auto width_for = [&](int64_t layers) {
    const double exact = std::sqrt(billions * 1e9 / (12.0 * double(layers)));
    return std::max<int64_t>(64, std::llround(exact / 64) * 64);
  };
  if (model.num_layers > 0) {
    if (model.hidden_size == 0) model.hidden_size = width_for(model.num_layers);
  } else {
    const bool width_known = model.hidden_size > 0;
    if (!width_known) model.hidden_size = gpt.hidden_size;
    const double square = 12.0 * double(model.hidden_size) * double(model.hidden_size);
    model.num_layers = alike && model.hidden_size == gpt.hidden_size
                           ? gpt.num_layers
                           : std::max<int64_t>(1, std::llround(billions * 1e9 / square));
    if (model.num_layers % stages != 0) {
      model.num_layers = std::max<int64_t>(1, (model.num_layers + stages / 2) / stages) * stages;
      if (!width_known) model.hidden_size = width_for(model.num_layers);
    }
  }
  if (model.num_heads == 0) {
    model.num_heads = model.hidden_size == gpt.hidden_size
                          ? gpt.num_heads
                          : std::max<int64_t>(1, model.hidden_size / 128);
  }
  cells.assume(fmt::format("a GPT of {:g} B parameters: {} layers of {}, {} heads", billions,
                           model.num_layers, model.hidden_size, model.num_heads));
}

}  // namespace smp::published
