#include "smp/runtime/parameters/huggingface_export.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "ledger/tensor_factories.h"
#include "ledger/torch_dtype.h"
#include "parameters/owned_part.h"
#include "smp/comm/communicator.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/base/check.h"
#include "smp/plan/files/atomic_file.h"
#include "smp/plan/layout/layout.h"
#include "smp/runtime/parameters/flat_parameters.h"
#include "smp/tensorfiles/safetensors/number_formats.h"
#include "smp/tensorfiles/safetensors/safetensors.h"

namespace smp::parameters {
namespace {

constexpr const char* kLabel = "save.weights";

// Bytes of a stored tensor that travel at once: large enough for efficient writes and messages,
// small beside the gradients and optimizer state that are freed before.
constexpr int64_t kBlockBytes = 256 << 10;

// A rank that sends elements [begin, end) of a box of a parameter, counted row by row.
struct Holder {
  int64_t rank = 0;
  model::Box box;
  int64_t begin = 0;
  int64_t end = 0;
};

// The elements of a parameter's box that a rank of the layout sends: all, those of its shard, or
// none, where another one has them too.
std::pair<int64_t, int64_t> held_of(const layout::RankLayout& layout,
                                    const layout::PlacedParameter& parameter) {
  const int64_t size = parameter.box.size();
  for (const layout::Bucket& bucket : layout.buckets) {
    if (parameter.offset < bucket.begin || parameter.offset >= bucket.end) continue;
    const layout::StateShare& state = layout.share_of(bucket);
    if (!parameter.counts || state.replica != 0) return {0, 0};
    if (!layout.shards_weights()) return {0, state.shard == 0 ? size : 0};
    const int64_t part = bucket.size() / state.shards;
    const int64_t begin = bucket.begin + state.shard * part - parameter.offset;
    return {std::clamp<int64_t>(begin, 0, size), std::clamp<int64_t>(begin + part, 0, size)};
  }
  check_failed(__FILE__, __LINE__, "a parameter is in no bucket");
}

// For each parameter the boxes that cover it, each element once. The holders are the tensor ranks
// whose copies count, on the first data-parallel rank; of sharded weights on all shards of the
// first replica.
std::map<std::string, std::vector<Holder>> holders_of(const Plan& plan) {
  std::map<std::string, std::vector<Holder>> holders;
  for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
    const layout::RankLayout layout = layout::rank_layout(plan, rank);
    for (const layout::PlacedParameter& parameter : layout.parameters) {
      const auto [begin, end] = held_of(layout, parameter);
      if (begin == end) continue;
      holders[parameter.spec.name].push_back({rank, parameter.box, begin, end});
    }
  }
  return holders;
}

// Splits a matrix into boxes of whole rows of what is stored, so that a box is contiguous in the
// file. A box has as many rows as kBlockBytes hold, and at least one.
std::vector<model::Box> blocks_of(const huggingface::HuggingFaceMatrix& matrix,
                                  int64_t element_bytes) {
  const int64_t rows = matrix.rows(), cols = matrix.cols();
  const int64_t stored_rows = matrix.transposed ? cols : rows;
  const int64_t stored_cols = matrix.transposed ? rows : cols;
  const int64_t step = std::max<int64_t>(1, kBlockBytes / (stored_cols * element_bytes));
  std::vector<model::Box> blocks;
  for (int64_t begin = 0; begin < stored_rows; begin += step) {
    const int64_t end = std::min(stored_rows, begin + step);
    blocks.push_back(matrix.transposed ? model::Box{0, rows, begin, end}
                                       : model::Box{begin, end, 0, cols});
  }
  return blocks;
}

// `box` of a parameter, cut to the source and to `block` of its matrix, in the parameter's own rows
// and columns; empty when they do not meet.
model::Box part_in(const model::Box& box, const huggingface::SourceRows& source,
                   const model::Box& block) {
  // The first row of the source that is not before this row of the matrix.
  const auto row_from = [&](int64_t row) {
    const int64_t rows = row - source.first;
    return source.begin + (rows <= 0 ? 0 : (rows + source.step - 1) / source.step);
  };
  return {std::max({box.row_begin, source.begin, row_from(block.row_begin)}),
          std::min({box.row_end, source.end, row_from(block.row_end)}),
          std::max(box.col_begin, block.col_begin), std::min(box.col_end, block.col_end)};
}

bool is_empty(const model::Box& box) { return box.rows() <= 0 || box.cols() <= 0; }

// The number of elements of `part` before element `end` of the box around it, both counted row by
// row.
int64_t count_before(const model::Box& box, const model::Box& part, int64_t end) {
  const int64_t row = box.row_begin + end / box.cols();
  if (row < part.row_begin) return 0;
  if (row >= part.row_end) return part.size();
  const int64_t col = std::clamp(box.col_begin + end % box.cols(), part.col_begin, part.col_end);
  return (row - part.row_begin) * part.cols() + (col - part.col_begin);
}

// Calls piece(row, col, count) for the row pieces of elements [begin, end) of a box of `cols`
// columns.
template <typename Piece>
void for_each_row(int64_t cols, int64_t begin, int64_t end, const Piece& piece) {
  for (int64_t at = begin; at < end;) {
    const int64_t count = std::min(cols - at % cols, end - at);
    piece(at / cols, at % cols, count);
    at += count;
  }
}

// Moves weights to rank 0, one call of gather() per block on every rank.
class WeightGatherer {
 public:
  WeightGatherer(const Plan& plan, const FlatParameters& parameters, comm::Communicator& world)
      : parameters_(parameters), world_(world), holders_(holders_of(plan)) {
    const auto& placed = parameters.layout().parameters;
    for (size_t i = 0; i < placed.size(); ++i) {
      own_[placed[i].spec.name] = static_cast<int64_t>(i);
    }
  }

  // The block as it is stored on rank 0, an undefined tensor elsewhere.
  at::Tensor gather(const huggingface::HuggingFaceMatrix& matrix, const model::Box& block) {
    at::Tensor stored, upright;  // the same bytes
    if (world_.rank() == 0) {
      stored = matrix.transposed ? allocate(block.cols(), block.rows())
                                 : allocate(block.rows(), block.cols());
      upright = matrix.transposed ? stored.t() : stored;
    }
    int64_t elements = 0;
    for (const huggingface::SourceRows& source : matrix.sources) {
      for (const Holder& holder : holders_.at(source.parameter.name)) {
        const model::Box part = part_in(holder.box, source, block);
        if (is_empty(part)) continue;
        const int64_t first = count_before(holder.box, part, holder.begin);
        const int64_t last = count_before(holder.box, part, holder.end);
        if (first == last) continue;
        elements += last - first;
        move(source.parameter, holder, part, first, last, [&] {
          const int64_t row = source.first + (part.row_begin - source.begin) * source.step;
          return upright.slice(0, row - block.row_begin, c10::nullopt, source.step)
              .narrow(0, 0, part.rows())
              .narrow(1, part.col_begin - block.col_begin, part.cols());
        });
      }
    }
    SMP_CHECK_EQ(elements, block.size());
    return stored;
  }

 private:
  at::Tensor allocate(int64_t rows, int64_t cols) const {
    return ledger::empty_tensor({rows, cols}, ledger::scalar_type_of(parameters_.dtype()));
  }

  // Elements [first, last) of this rank's `part` of a parameter, in one piece.
  at::Tensor packed(const model::ParameterSpec& source, const Holder& holder,
                    const model::Box& part, int64_t first, int64_t last) {
    const int64_t index = own_.at(source.name);
    const model::Box& box = holder.box;
    const int64_t row = part.row_begin - box.row_begin, col = part.col_begin - box.col_begin;
    if (!parameters_.layout().shards_weights()) {
      return parameters_.weight(index)
          .view({box.rows(), box.cols()})
          .narrow(0, row, part.rows())
          .narrow(1, col, part.cols())
          .contiguous();
    }
    // One copy from the GPU for all blocks of the parameter: the latency of a copy is that of
    // thousands of rows.
    if (std::exchange(here_index_, index) != index) here_ = own_shard(index).to(at::kCPU);
    const at::Tensor packed = ledger::empty_tensor({last - first}, here_.options());
    int64_t done = 0;
    for_each_row(part.cols(), first, last, [&](int64_t r, int64_t c, int64_t count) {
      const int64_t element = (row + r) * box.cols() + col + c - holder.begin;
      packed.narrow(0, done, count).copy_(here_.narrow(0, element, count));
      done += count;
    });
    return packed;
  }

  // The part of a parameter in this rank's shard, contiguous, from element holder.begin of its box
  // on.
  at::Tensor own_shard(int64_t index) const {
    const layout::RankLayout& layout = parameters_.layout();
    const layout::PlacedParameter& parameter = layout.parameters[static_cast<size_t>(index)];
    const auto [begin, end] = held_of(layout, parameter);
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
      const layout::Bucket& bucket = layout.buckets[b];
      if (parameter.offset < bucket.begin || parameter.offset >= bucket.end) continue;
      const OwnedPart owned = parameters_.owned(static_cast<int64_t>(b));
      return owned.weights.narrow(0, parameter.offset + begin - owned.begin, end - begin);
    }
    check_failed(__FILE__, __LINE__, "a parameter is in no bucket");
  }

  // Elements [first, last) of a part of a parameter from their holder to place() on rank 0.
  template <typename Place>
  void move(const model::ParameterSpec& source, const Holder& holder, const model::Box& part,
            int64_t first, int64_t last, const Place& place) {
    const DType dtype = parameters_.dtype();
    const bool mine = holder.rank == world_.rank();
    if (world_.rank() != 0) {
      if (!mine) return;
      const at::Tensor elements = packed(source, holder, part, first, last);
      world_.send(elements.const_data_ptr(), last - first, dtype, 0, kLabel)->wait();
      return;
    }
    const at::Tensor to = place();
    const bool in_place = !mine && to.is_contiguous();
    const at::Tensor landing = mine       ? packed(source, holder, part, first, last)
                               : in_place ? to.view({-1}).narrow(0, first, last - first)
                                          : allocate(1, last - first);
    if (!mine) {
      const auto peer = static_cast<int>(holder.rank);
      world_.recv(landing.mutable_data_ptr(), last - first, dtype, peer, kLabel)->wait();
    }
    if (in_place) return;
    if (last - first == part.size()) {
      to.copy_(landing.view({part.rows(), part.cols()}));
      return;
    }
    int64_t done = 0;
    const at::Tensor flat = landing.view({-1});
    for_each_row(part.cols(), first, last, [&](int64_t r, int64_t c, int64_t count) {
      to.select(0, r).narrow(0, c, count).copy_(flat.narrow(0, done, count));
      done += count;
    });
  }

  const FlatParameters& parameters_;
  comm::Communicator& world_;
  std::map<std::string, std::vector<Holder>> holders_;
  std::map<std::string, int64_t> own_;
  int64_t here_index_ = -1;  // the parameter whose shard is in here_, on the host
  at::Tensor here_;
};

}  // namespace

namespace {

DType saved_dtype(const Plan& plan, DType trained) {
  switch (plan.job.training.save_weights_as.value_or(Precision::kFp8)) {
    case Precision::kFp32: return DType::kF32;
    case Precision::kFp64: return DType::kF64;
    case Precision::kBf16: return DType::kBF16;
    case Precision::kFp16: return DType::kF16;
    case Precision::kNvfp4:
    case Precision::kFp8: return trained;  // save_weights_as is not set
  }
  check_failed(__FILE__, __LINE__, "unknown precision");
}

// The block as the file's type, rounded to nearest.
at::Tensor as_saved(const at::Tensor& block, DType from, DType to) {
  if (from == to) return block;
  const at::Tensor out = ledger::empty_tensor(block.sizes(), ledger::scalar_type_of(to));
  safetensors::convert_numbers(from, static_cast<const std::byte*>(block.const_data_ptr()),
                               block.numel(), to, static_cast<std::byte*>(out.mutable_data_ptr()),
                               1);
  return out;
}

int64_t not_finite(const at::Tensor& numbers, DType dtype) {
  return safetensors::count_not_finite(
      dtype, static_cast<const std::byte*>(numbers.const_data_ptr()), numbers.numel());
}

// Calls body(block) on rank 0 for the blocks of the stored tensor, in order. Collective.
template <typename Body>
void for_each_block(const huggingface::HuggingFaceTensor& tensor, DType trained,
                    WeightGatherer& gatherer, const Body& body) {
  for (const huggingface::HuggingFaceMatrix& matrix : tensor.matrices) {
    for (const model::Box& block : blocks_of(matrix, bytes_of(trained))) {
      const at::Tensor stored = gatherer.gather(matrix, block);
      if (stored.defined()) body(stored);
    }
  }
}

// On rank 0 returns the first tensor with numbers that would become infinite. Collective.
std::string beyond_fp16(const std::vector<huggingface::HuggingFaceTensor>& tensors, DType trained,
                        WeightGatherer& gatherer) {
  std::string beyond;
  for (const huggingface::HuggingFaceTensor& tensor : tensors) {
    for_each_block(tensor, trained, gatherer, [&](const at::Tensor& stored) {
      if (!beyond.empty()) return;
      const at::Tensor saved = as_saved(stored, trained, DType::kF16);
      if (not_finite(saved, DType::kF16) > not_finite(stored, trained)) beyond = tensor.name;
    });
  }
  return beyond;
}

}  // namespace

std::string save_weights(const Plan& plan, const FlatParameters& parameters,
                         comm::Communicator& world, const std::string& dir) {
  const std::vector<huggingface::HuggingFaceTensor> tensors =
      huggingface::huggingface_tensors(plan.job.model);
  WeightGatherer gatherer(plan, parameters, world);
  DType dtype = saved_dtype(plan, parameters.dtype());
  std::string note;
  if (dtype == DType::kF16 && dtype != parameters.dtype()) {
    const std::string beyond = beyond_fp16(tensors, parameters.dtype(), gatherer);
    if (!beyond.empty()) {
      dtype = parameters.dtype();
      note = fmt::format(
          "warning: training.save_weights_as: parameter '{}' has values above 65504, the largest "
          "of fp16; the weights are saved as {}\n",
          beyond, safetensors::safetensors_name_of(dtype));
    }
  }
  std::unique_ptr<safetensors::SafetensorsWriter> writer;
  if (world.rank() == 0) {
    std::filesystem::create_directories(dir);
    std::vector<safetensors::SafetensorsEntry> entries;
    for (const huggingface::HuggingFaceTensor& tensor : tensors) {
      entries.push_back({tensor.name, dtype, tensor.shape});
    }
    writer = std::make_unique<safetensors::SafetensorsWriter>(dir + "/model.safetensors",
                                                              std::move(entries));
  }
  for (const huggingface::HuggingFaceTensor& tensor : tensors) {
    for_each_block(tensor, parameters.dtype(), gatherer, [&](const at::Tensor& stored) {
      const at::Tensor saved = as_saved(stored, parameters.dtype(), dtype);
      writer->append(tensor.name, saved.const_data_ptr(), saved.numel() * bytes_of(dtype));
    });
  }
  if (!writer) return "";
  writer->finish();
  files::write_file_atomically(dir + "/config.json",
                               huggingface::huggingface_config(plan.job.model, dtype));
  return note;
}

}  // namespace smp::parameters
