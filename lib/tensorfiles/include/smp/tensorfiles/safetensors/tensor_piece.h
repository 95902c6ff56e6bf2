#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/model/layers.h"

// The position of a rank's piece in a tensor, for the writer and the reader of checkpoints. Plain
// data; no torch.
namespace smp::safetensors {

// Elements [begin, end) of `box`, counted row by row, follow each other at `data`. The box is a
// rectangle of the whole tensor; a vector has one column.
struct TensorPiece {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor: {rows, cols} or {rows}
  DType dtype = DType::kF32;
  model::Box box;
  int64_t begin = 0;
  int64_t end = 0;
  std::byte* data = nullptr;

  int64_t size() const { return end - begin; }
  int64_t bytes() const { return size() * bytes_of(dtype); }
};

// A rectangle of a tensor whose elements follow each other in memory, from element `offset` of a
// piece on.
struct Rectangle {
  model::Box box;  // in the whole tensor
  int64_t offset = 0;
};

// The rectangles that make up a piece, in its order: part of a row, whole rows, part of a row.
// Empty ones are left out.
std::vector<Rectangle> rectangles_of(const TensorPiece& piece);

// The share of the `copy`-th of `copies` ranks that hold the same pieces: an equal part of all
// their elements, so that these ranks share the writing.
std::vector<TensorPiece> share_of(const std::vector<TensorPiece>& pieces, int64_t copies,
                                  int64_t copy);

}  // namespace smp::safetensors
