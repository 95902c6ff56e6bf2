#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "smp/plan/mesh/collective.h"
#include "smp/tensorfiles/checkpoint/checkpoint_shards.h"
#include "smp/tensorfiles/checkpoint/checkpoint_store.h"
#include "smp/tensorfiles/safetensors/tensor_piece.h"

// A state of a few tensors without a model, cut for any number of ranks: what the tests of the
// torch-free writer and reader save and load.
namespace smp {

struct StateTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;

  model::Box box() const { return {0, shape[0], 0, shape.size() == 2 ? shape[1] : 1}; }
};

// The values differ between seeds, tensors and elements.
inline std::vector<StateTensor> make_state(int64_t seed) {
  std::vector<StateTensor> state = {
      {"layers.0.weight", {7, 5}, {}}, {"norm", {13}, {}}, {"head.weight", {700, 601}, {}}};
  float value = static_cast<float>(seed);
  for (StateTensor& tensor : state) {
    tensor.values.resize(static_cast<size_t>(tensor.box().size()));
    for (float& one : tensor.values) one = value += 0.25F;
  }
  return state;
}

// How a state is cut: columns (of matrices) in `tensor` parts, those flat in `shard` parts, and
// `copies` ranks hold each.
struct Cut {
  int64_t tensor = 1;
  int64_t shard = 1;
  int64_t copies = 1;

  int64_t ranks() const { return tensor * shard * copies; }
};

// One rank's memory and the pieces in it.
struct RankState {
  std::vector<std::vector<float>> memory;
  std::vector<safetensors::TensorPiece> pieces;
  int64_t copy = 0;

  std::vector<safetensors::TensorPiece> share(const Cut& cut) const {
    return safetensors::share_of(pieces, cut.copies, copy);
  }
};

inline RankState rank_state(const std::vector<StateTensor>& state, const Cut& cut, int64_t rank) {
  RankState mine;
  const int64_t t = rank % cut.tensor, z = rank / cut.tensor % cut.shard;
  mine.copy = rank / cut.tensor / cut.shard;
  for (const StateTensor& tensor : state) {
    model::Box box = tensor.box();
    if (tensor.shape.size() == 2) {
      const int64_t cols = box.cols();
      box.col_begin = mesh::part_begin(cols, cut.tensor, t);
      box.col_end = box.col_begin + mesh::part_size(cols, cut.tensor, t);
    } else if (t != 0) {
      continue;
    }
    safetensors::TensorPiece piece{tensor.name, tensor.shape, DType::kF32, box, 0, 0, nullptr};
    piece.begin = mesh::part_begin(box.size(), cut.shard, z);
    piece.end = piece.begin + mesh::part_size(box.size(), cut.shard, z);
    std::vector<float>& values = mine.memory.emplace_back();
    for (int64_t i = piece.begin; i < piece.end; ++i) {
      const int64_t row = box.row_begin + i / box.cols(), col = box.col_begin + i % box.cols();
      values.push_back(tensor.values[static_cast<size_t>(row * tensor.box().cols() + col)]);
    }
    mine.pieces.push_back(piece);
  }
  for (size_t i = 0; i < mine.pieces.size(); ++i) {
    mine.pieces[i].data = reinterpret_cast<std::byte*>(mine.memory[i].data());
  }
  return mine;
}

// All ranks of a cut save, one after the other.
inline void save_state(checkpoint::CheckpointStore& store, const std::vector<StateTensor>& state,
                       const Cut& cut, int64_t step, int64_t keep, files::FileCalls& calls) {
  for (int64_t rank = 0; rank < cut.ranks(); ++rank) {
    const RankState mine = rank_state(state, cut, rank);
    checkpoint::RankShards shards(rank, mine.share(cut));
    shards.copy();
    shards.write(store.begin(step), step, calls);
  }
  store.commit(step, cut.ranks(), keep, {});
}

}  // namespace smp
