#include "smp/tensorfiles/safetensors/tensor_piece.h"

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/mesh/collective.h"

namespace smp::safetensors {

std::vector<Rectangle> rectangles_of(const TensorPiece& piece) {
  const model::Box& box = piece.box;
  SMP_CHECK(piece.begin >= 0 && piece.begin <= piece.end && piece.end <= box.size());
  std::vector<Rectangle> found;
  for (int64_t at = piece.begin; at < piece.end;) {
    const int64_t row = at / box.cols(), col = at % box.cols();
    model::Box part{box.row_begin + row, 0, box.col_begin + col, 0};
    if (col == 0 && piece.end - at >= box.cols()) {  // whole rows
      part.row_end = part.row_begin + (piece.end - at) / box.cols();
      part.col_end = box.col_end;
    } else {
      part.row_end = part.row_begin + 1;
      part.col_end = std::min(box.col_end, part.col_begin + (piece.end - at));
    }
    found.push_back({part, at - piece.begin});
    at += part.size();
  }
  return found;
}

std::vector<TensorPiece> share_of(const std::vector<TensorPiece>& pieces, int64_t copies,
                                  int64_t copy) {
  int64_t elements = 0;
  for (const TensorPiece& piece : pieces) elements += piece.size();
  const int64_t begin = mesh::part_begin(elements, copies, copy);
  const int64_t end = begin + mesh::part_size(elements, copies, copy);
  std::vector<TensorPiece> share;
  int64_t first = 0;  // of the piece, among all elements
  for (const TensorPiece& piece : pieces) {
    const int64_t from = std::max(begin, first), to = std::min(end, first + piece.size());
    if (from < to) {
      share.push_back(piece);
      share.back().begin = piece.begin + (from - first);
      share.back().end = piece.begin + (to - first);
      share.back().data += (from - first) * bytes_of(piece.dtype);
    }
    first += piece.size();
  }
  return share;
}

}  // namespace smp::safetensors
