#include <fmt/format.h>

#include "jobfile/job_builder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/model/operators.h"

// What the items of model.layers must say together.
namespace smp::jobfile {
namespace {

constexpr int64_t kMostSampleElements = int64_t{1} << 31;  // of one sample

}  // namespace

// Shapes from the first operator to the last; the sizes that follow from them.
void JobBuilder::resolve_layer_list() {
  ModelSpec& model = spec_.model;
  if (!usable(
          {"model.layers", "model.input.channels", "model.input.height", "model.input.width"})) {
    return bad_layer_list();
  }
  SampleShape in = model::input_of(model);
  int64_t matrices = 0;
  for (size_t i = 0; i < model.operators.size(); ++i) {
    const model::OperatorRules& rules = model::rules_of(model.operators[i].kind);
    matrices += rules.has_matrix ? 1 : 0;
    try {
      if (model::elements_of(in) > kMostSampleElements) {
        throw ConfigError(fmt::format("{} gets {} elements of a sample, more than 2^31", rules.type,
                                      model::elements_of(in)));
      }
      in = rules.output(model.operators[i], in);
    } catch (const ConfigError& error) {
      diagnostics_.error(i < layer_places_.size() ? layer_places_[i] : place_of({"model.layers"}),
                         fmt::format("layers item {}: {}", i, error.what()));
      return bad_layer_list();
    }
  }
  if (in.size() != 1) {
    error({"model.layers"}, fmt::format("layers end with the shape {}, but cross_entropy needs one "
                                        "number for each class: end with flatten and a linear",
                                        model::to_string(in)));
    return bad_layer_list();
  }
  if (matrices < 2) {
    error({"model.layers"},
          fmt::format(
              "the number of entries of layers with a matrix (conv2d, linear) is {}: expected 2 or "
              "more, because each begins a layer and the last one computes the loss",
              matrices));
    return bad_layer_list();
  }
  model::set_list_sizes(model);
}

// What the other checks look at is then not said twice.
void JobBuilder::bad_layer_list() {
  spec_.model.operators.clear();
  entries_["model.layers"].state = State::kBad;
}

}  // namespace smp::jobfile
