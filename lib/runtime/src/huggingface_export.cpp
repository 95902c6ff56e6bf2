#include "smp/runtime/huggingface_export.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <filesystem>
#include <map>
#include <memory>

#include "smp/comm/communicator.h"
#include "smp/plan/check.h"
#include "smp/plan/layout.h"
#include "smp/runtime/atomic_file.h"
#include "smp/runtime/flat_parameters.h"
#include "smp/runtime/safetensors.h"
#include "torch_dtype.h"

namespace smp {
namespace {

constexpr const char* kLabel = "save.weights";

// A rank that sends a box of a parameter.
struct Holder {
  int64_t rank = 0;
  Box box;
};

// For each parameter the boxes that make it whole, each once: the copies that count, of the first
// data-parallel rank.
std::map<std::string, std::vector<Holder>> holders_of(const Plan& plan) {
  std::map<std::string, std::vector<Holder>> holders;
  for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
    const RankLayout layout = rank_layout(plan, rank);
    if (layout.coord.data(plan.degrees) != 0) continue;
    for (const PlacedParameter& parameter : layout.parameters) {
      if (parameter.counts) holders[parameter.spec.name].push_back({rank, parameter.box});
    }
  }
  return holders;
}

// Moves tensors to rank 0, one call of gather() per tensor on every rank.
class WeightGatherer {
 public:
  WeightGatherer(const Plan& plan, const FlatParameters& parameters, Communicator& world)
      : parameters_(parameters), world_(world), holders_(holders_of(plan)) {
    const auto& placed = parameters.layout().parameters;
    for (size_t i = 0; i < placed.size(); ++i) {
      own_[placed[i].spec.name] = static_cast<int64_t>(i);
    }
  }

  // The whole tensor on rank 0, an undefined one elsewhere.
  at::Tensor gather(const HuggingFaceTensor& tensor) {
    int64_t rows = 0;
    for (const ParameterSpec& source : tensor.sources) rows += source.rows;
    const at::Tensor whole =
        world_.rank() == 0 ? allocate(rows, tensor.sources.front().cols) : at::Tensor();
    int64_t row = 0;
    for (const ParameterSpec& source : tensor.sources) {
      int64_t elements = 0;
      for (const Holder& holder : holders_.at(source.name)) {
        move(source, holder, row, whole);
        elements += holder.box.size();
      }
      SMP_CHECK_EQ(elements, source.size());
      row += source.rows;
    }
    return tensor.transposed && whole.defined() ? whole.t().contiguous() : whole;
  }

 private:
  at::Tensor allocate(int64_t rows, int64_t cols) const {
    return at::empty({rows, cols}, scalar_type_of(parameters_.dtype()));
  }

  // One box from its holder to its place in `whole`, whose row `first_row` is the parameter's
  // first.
  void move(const ParameterSpec& source, const Holder& holder, int64_t first_row,
            const at::Tensor& whole) {
    const Box& box = holder.box;
    const DType dtype = parameters_.dtype();
    const bool mine = holder.rank == world_.rank();
    if (world_.rank() != 0) {
      if (!mine) return;
      const at::Tensor& weight = parameters_.weight(own_.at(source.name));
      world_.send(weight.const_data_ptr(), box.size(), dtype, 0, kLabel)->wait();
      return;
    }
    const at::Tensor place =
        whole.narrow(0, first_row + box.row_begin, box.rows()).narrow(1, box.col_begin, box.cols());
    if (mine) {
      place.copy_(parameters_.weight(own_.at(source.name)).view({box.rows(), box.cols()}));
      return;
    }
    const at::Tensor landing = place.is_contiguous() ? place : allocate(box.rows(), box.cols());
    const auto peer = static_cast<int>(holder.rank);
    world_.recv(landing.mutable_data_ptr(), box.size(), dtype, peer, kLabel)->wait();
    if (!place.is_contiguous()) place.copy_(landing);
  }

  const FlatParameters& parameters_;
  Communicator& world_;
  std::map<std::string, std::vector<Holder>> holders_;
  std::map<std::string, int64_t> own_;
};

}  // namespace

void save_weights(const Plan& plan, const FlatParameters& parameters, Communicator& world,
                  const std::string& dir) {
  const std::vector<HuggingFaceTensor> tensors = huggingface_tensors(plan.job.model);
  std::unique_ptr<SafetensorsWriter> writer;
  if (world.rank() == 0) {
    std::filesystem::create_directories(dir);
    std::vector<SafetensorsEntry> entries;
    for (const HuggingFaceTensor& tensor : tensors) {
      entries.push_back({tensor.name, parameters.dtype(), tensor.shape});
    }
    writer = std::make_unique<SafetensorsWriter>(dir + "/model.safetensors", std::move(entries));
  }
  WeightGatherer gatherer(plan, parameters, world);
  for (const HuggingFaceTensor& tensor : tensors) {
    const at::Tensor whole = gatherer.gather(tensor);
    if (writer) writer->write(tensor.name, whole.const_data_ptr());
  }
  if (!writer) return;
  writer->finish();
  write_file_atomically(dir + "/config.json",
                        huggingface_config(plan.job.model, parameters.dtype()));
}

}  // namespace smp
