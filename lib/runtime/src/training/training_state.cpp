#include "training/training_state.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "gpu/host_copies.h"
#include "ledger/torch_dtype.h"
#include "parameters/owned_part.h"
#include "smp/plan/model/layers.h"
#include "smp/runtime/optim/optimizer.h"
#include "smp/runtime/parallel/parallelize.h"
#include "smp/runtime/parameters/flat_parameters.h"

namespace smp::training {
namespace {

struct Counter {
  const char* name;
  int64_t TrainingCounters::*value;
};
constexpr Counter kCounters[] = {{"trainer.step", &TrainingCounters::step},
                                 {"trainer.samples", &TrainingCounters::samples},
                                 {"trainer.seed", &TrainingCounters::seed},
                                 {"trainer.data_bytes", &TrainingCounters::data_bytes},
                                 {"optimizer.steps", &TrainingCounters::optimizer_steps}};

constexpr Counter kLossScaleCounters[] = {
    {"loss_scale.bits", &TrainingCounters::loss_scale_bits},
    {"loss_scale.good_steps", &TrainingCounters::good_steps},
    {"loss_scale.overflows_left", &TrainingCounters::overflows_left},
    {"loss_scale.skipped_steps", &TrainingCounters::skipped_steps}};

constexpr Counter kBestCounters[] = {
    {kBestLoss, &TrainingCounters::best_loss_bits},
    {"evaluation.best_step", &TrainingCounters::best_step},
    {"evaluation.counted_loss_bits", &TrainingCounters::counted_loss_bits},
    {"evaluation.without_improvement", &TrainingCounters::without_improvement}};

std::string name_of_state(std::string_view state, const std::string& parameter) {
  return fmt::format("optimizer.{}.{}", state, parameter);
}

// Elements [begin, end) of the parameter's box; the first lies at `data`.
safetensors::TensorPiece piece_of(const layout::PlacedParameter& parameter, std::string name,
                                  DType dtype, int64_t begin, int64_t end, std::byte* data) {
  const model::ParameterSpec& spec = parameter.spec;
  safetensors::TensorPiece piece;
  piece.name = std::move(name);
  piece.shape = {spec.rows};
  if (!spec.is_vector) piece.shape.push_back(spec.cols);
  piece.dtype = dtype;
  piece.box = parameter.box;
  piece.begin = begin;
  piece.end = end;
  piece.data = data;
  return piece;
}

std::vector<safetensors::TensorPiece> counter_pieces(TrainingCounters& counters) {
  std::vector<safetensors::TensorPiece> pieces;
  const auto add = [&](const Counter& counter) {
    pieces.push_back({counter.name,
                      {1},
                      DType::kI64,
                      {0, 1, 0, 1},
                      0,
                      1,
                      reinterpret_cast<std::byte*>(&(counters.*counter.value))});
  };
  for (const Counter& counter : kCounters) add(counter);
  if (counters.has_loss_scale) {
    for (const Counter& counter : kLossScaleCounters) add(counter);
  }
  if (counters.has_best) {
    for (const Counter& counter : kBestCounters) add(counter);
  }
  return pieces;
}

// Elements [begin, end) of a parameter's box that this rank updates.
struct OwnedPart {
  const layout::PlacedParameter& parameter;
  int64_t begin = 0;
  int64_t end = 0;
  const at::Tensor& weights;  // the rank's part of the bucket
  int64_t place = 0;          // of the first element in `weights`
  int64_t state = 0;          // of the first element in the optimizer's states
};

// Of what a rank owns: all, or without copies that another tensor rank counts the experts that
// ranks share, or all others.
enum class Which { kAll, kCounted, kExperts };

template <typename Body>
void for_each_owned(const parameters::FlatParameters& parameters, Which which, const Body& body) {
  const layout::RankLayout& layout = parameters.layout();
  int64_t before = 0;  // elements of the rank's parts of earlier buckets
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const parameters::OwnedPart owned = parameters.owned(static_cast<int64_t>(b));
    const bool is_of_experts = layout.buckets[b].is_of_experts;
    const bool skips = is_of_experts ? which == Which::kCounted : which == Which::kExperts;
    for (const layout::PlacedParameter& parameter : layout.parameters) {
      if (skips) break;
      if (which != Which::kAll && !parameter.counts) continue;
      const int64_t from = std::max(owned.begin, parameter.offset);
      const int64_t to = std::min(owned.end, parameter.offset + parameter.box.size());
      if (from >= to) continue;
      const int64_t place = from - owned.begin;
      body(OwnedPart{parameter, from - parameter.offset, to - parameter.offset, owned.weights,
                     place, before + place});
    }
    before += owned.end - owned.begin;
  }
}

// Each state has its own type, which may be wider than the weights'.
std::vector<safetensors::TensorPiece> optimizer_pieces(const parallel::ParallelModel& model,
                                                       Which which, gpu::HostCopies& copies) {
  std::vector<safetensors::TensorPiece> pieces;
  for (const optim::Optimizer::State& state : model.optimizer->states()) {
    const DType dtype = ledger::dtype_of(state.values->scalar_type());
    std::byte* const data = copies.bytes_of(*state.values);
    for_each_owned(*model.parameters, which, [&](const OwnedPart& part) {
      pieces.push_back(piece_of(part.parameter, name_of_state(state.name, part.parameter.spec.name),
                                dtype, part.begin, part.end, data + part.state * bytes_of(dtype)));
    });
  }
  return pieces;
}

// The weights that this rank updates. They are valid even while gathers are in flight.
std::vector<safetensors::TensorPiece> owned_weights(const parallel::ParallelModel& model,
                                                    Which which, gpu::HostCopies& copies) {
  const DType dtype = model.parameters->dtype();
  std::vector<safetensors::TensorPiece> pieces;
  for_each_owned(*model.parameters, which, [&](const OwnedPart& part) {
    pieces.push_back(piece_of(part.parameter, part.parameter.spec.name, dtype, part.begin, part.end,
                              copies.bytes_of(part.weights) + part.place * bytes_of(dtype)));
  });
  return pieces;
}

void append(std::vector<safetensors::TensorPiece>& all,
            std::vector<safetensors::TensorPiece> more) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

}  // namespace

std::vector<safetensors::TensorPiece> pieces_to_save(parallel::ParallelModel& model,
                                                     TrainingCounters& counters,
                                                     gpu::HostCopies& copies) {
  const layout::RankLayout& layout = model.parameters->layout();
  std::vector<safetensors::TensorPiece> pieces;
  if (layout.rank == 0) append(pieces, counter_pieces(counters));
  for (const Which which : {Which::kCounted, Which::kExperts}) {
    const layout::StateShare& share = which == Which::kExperts ? layout.expert_state : layout.state;
    std::vector<safetensors::TensorPiece> owned = owned_weights(model, which, copies);
    append(owned, optimizer_pieces(model, which, copies));
    append(pieces, safetensors::share_of(owned, share.replicas, share.replica));
  }
  return pieces;
}

std::vector<safetensors::TensorPiece> pieces_to_load(parallel::ParallelModel& model,
                                                     TrainingCounters& counters,
                                                     gpu::HostCopies& copies) {
  std::vector<safetensors::TensorPiece> pieces = counter_pieces(counters);
  append(pieces, weights_to_load(model, copies));
  append(pieces, optimizer_pieces(model, Which::kAll, copies));
  return pieces;
}

std::vector<safetensors::TensorPiece> weights_to_load(const parallel::ParallelModel& model,
                                                      gpu::HostCopies& copies) {
  const parameters::FlatParameters& parameters = *model.parameters;
  std::vector<safetensors::TensorPiece> pieces;
  if (parameters.layout().shards_weights()) {
    pieces = owned_weights(model, Which::kAll, copies);
  } else {
    std::byte* const data = copies.bytes_of(parameters.weights());
    for (const layout::PlacedParameter& parameter : parameters.layout().parameters) {
      pieces.push_back(piece_of(parameter, parameter.spec.name, parameters.dtype(), 0,
                                parameter.box.size(),
                                data + parameter.offset * bytes_of(parameters.dtype())));
    }
  }
  if (const auto& copy = parameters.layout().tied_copy) {
    pieces.push_back(piece_of(*copy, copy->spec.name, parameters.dtype(), 0, copy->box.size(),
                              copies.bytes_of(parameters.tied_weight())));
  }
  return pieces;
}

std::vector<std::string> names_of_state(const Plan& plan, const parallel::ParallelModel& model) {
  std::vector<std::string> names;
  for (const Counter& counter : kCounters) names.emplace_back(counter.name);
  if (model.loss_scale.guards()) {
    for (const Counter& counter : kLossScaleCounters) names.emplace_back(counter.name);
  }
  if (plan.job.training.evaluation.every_steps > 0) {
    for (const Counter& counter : kBestCounters) names.emplace_back(counter.name);
  }
  for (const model::LayerSpec& layer : model::layers_of(plan.job.model)) {
    for (const model::ParameterSpec& parameter : model::parameters_of(plan.job.model, layer)) {
      names.push_back(parameter.name);
      for (const optim::Optimizer::State& state : model.optimizer->states()) {
        names.push_back(name_of_state(state.name, parameter.name));
      }
    }
  }
  return names;
}

}  // namespace smp::training
