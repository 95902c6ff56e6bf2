#include "smp/runtime/huggingface_export.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
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

// Of the stored tensor at once: long enough for the file and the messages, nothing beside the
// gradients and optimizer state that are gone by then.
constexpr int64_t kBlockBytes = 256 << 10;

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

// Cuts a stacked tensor (its sources below each other) in boxes that are whole rows of the stored
// one, so that their bytes follow each other in the file: as many as kBlockBytes hold, one at
// least.
std::vector<Box> blocks_of(const HuggingFaceTensor& tensor, int64_t element_bytes) {
  int64_t rows = 0;
  for (const ParameterSpec& source : tensor.sources) rows += source.rows;
  const int64_t cols = tensor.sources.front().cols;
  const int64_t stored_rows = tensor.transposed ? cols : rows;
  const int64_t stored_cols = tensor.transposed ? rows : cols;
  const int64_t step = std::max<int64_t>(1, kBlockBytes / (stored_cols * element_bytes));
  std::vector<Box> blocks;
  for (int64_t begin = 0; begin < stored_rows; begin += step) {
    const int64_t end = std::min(stored_rows, begin + step);
    blocks.push_back(tensor.transposed ? Box{0, rows, begin, end} : Box{begin, end, 0, cols});
  }
  return blocks;
}

// `box` of a parameter whose row 0 is row `first_row` of the stacked tensor, cut to `block`, in the
// parameter's own rows and columns; empty when they do not meet.
Box part_in(const Box& box, int64_t first_row, const Box& block) {
  return {std::max(box.row_begin, block.row_begin - first_row),
          std::min(box.row_end, block.row_end - first_row),
          std::max(box.col_begin, block.col_begin), std::min(box.col_end, block.col_end)};
}

bool is_empty(const Box& box) { return box.rows() <= 0 || box.cols() <= 0; }

// Moves weights to rank 0, one call of gather() per block on every rank.
class WeightGatherer {
 public:
  WeightGatherer(const Plan& plan, const FlatParameters& parameters, Communicator& world)
      : parameters_(parameters), world_(world), holders_(holders_of(plan)) {
    const auto& placed = parameters.layout().parameters;
    for (size_t i = 0; i < placed.size(); ++i) {
      own_[placed[i].spec.name] = static_cast<int64_t>(i);
    }
  }

  // The block as it is stored on rank 0, an undefined tensor elsewhere.
  at::Tensor gather(const HuggingFaceTensor& tensor, const Box& block) {
    at::Tensor stored, stacked;  // the same bytes
    if (world_.rank() == 0) {
      stored = tensor.transposed ? allocate(block.cols(), block.rows())
                                 : allocate(block.rows(), block.cols());
      stacked = tensor.transposed ? stored.t() : stored;
    }
    int64_t first_row = 0, elements = 0;
    for (const ParameterSpec& source : tensor.sources) {
      for (const Holder& holder : holders_.at(source.name)) {
        const Box part = part_in(holder.box, first_row, block);
        if (is_empty(part)) continue;
        elements += part.size();
        move(source, holder, part, [&] {
          return stacked.narrow(0, first_row + part.row_begin - block.row_begin, part.rows())
              .narrow(1, part.col_begin - block.col_begin, part.cols());
        });
      }
      first_row += source.rows;
    }
    SMP_CHECK_EQ(elements, block.size());
    return stored;
  }

 private:
  at::Tensor allocate(int64_t rows, int64_t cols) const {
    return at::empty({rows, cols}, scalar_type_of(parameters_.dtype()));
  }

  // This rank's `part` of a parameter of which it holds `box`.
  at::Tensor held(const ParameterSpec& source, const Box& box, const Box& part) const {
    return parameters_.weight(own_.at(source.name))
        .view({box.rows(), box.cols()})
        .narrow(0, part.row_begin - box.row_begin, part.rows())
        .narrow(1, part.col_begin - box.col_begin, part.cols());
  }

  // A part of a parameter from its holder to place() on rank 0.
  template <typename Place>
  void move(const ParameterSpec& source, const Holder& holder, const Box& part,
            const Place& place) {
    const DType dtype = parameters_.dtype();
    const bool mine = holder.rank == world_.rank();
    if (world_.rank() != 0) {
      if (!mine) return;
      const at::Tensor packed = held(source, holder.box, part).contiguous();
      world_.send(packed.const_data_ptr(), part.size(), dtype, 0, kLabel)->wait();
      return;
    }
    const at::Tensor to = place();
    if (mine) {
      to.copy_(held(source, holder.box, part));
      return;
    }
    const at::Tensor landing = to.is_contiguous() ? to : allocate(part.rows(), part.cols());
    const auto peer = static_cast<int>(holder.rank);
    world_.recv(landing.mutable_data_ptr(), part.size(), dtype, peer, kLabel)->wait();
    if (!to.is_contiguous()) to.copy_(landing);
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
    for (const Box& block : blocks_of(tensor, bytes_of(parameters.dtype()))) {
      const at::Tensor stored = gatherer.gather(tensor, block);
      if (writer) {
        writer->append(tensor.name, stored.const_data_ptr(),
                       stored.numel() * bytes_of(parameters.dtype()));
      }
    }
  }
  if (!writer) return;
  writer->finish();
  write_file_atomically(dir + "/config.json",
                        huggingface_config(plan.job.model, parameters.dtype()));
}

}  // namespace smp
