#include "smp/plan/data/packing.h"

#include <algorithm>

#include "smp/plan/check.h"

namespace smp {
namespace {

// The first `length` tokens of a piece, which keeps the others.
DocumentPiece cut_front(DocumentPiece& piece, int64_t length) {
  DocumentPiece front = piece;
  front.length = length;
  front.ends = false;
  piece.begin += length;
  piece.offset += length;
  piece.length -= length;
  return front;
}

// In the order of the stream; neighbours there are one piece again.
void tidy(std::vector<DocumentPiece>& row) {
  std::sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  size_t kept = 0;
  for (size_t i = 1; i < row.size(); ++i) {
    DocumentPiece& last = row[kept];
    if (!last.ends && last.begin + last.length == row[i].begin) {
      last.length += row[i].length;
      last.ends = row[i].ends;
    } else {
      row[++kept] = row[i];
    }
  }
  row.resize(std::min(row.size(), kept + 1));
}

}  // namespace

std::vector<std::vector<DocumentPiece>> pack_best_fit(std::vector<DocumentPiece> pieces,
                                                      int64_t rows, int64_t length) {
  std::vector<std::vector<DocumentPiece>> packed(static_cast<size_t>(rows));
  std::vector<int64_t> room(static_cast<size_t>(rows), length);
  size_t next = 0;
  const auto put = [&](const DocumentPiece& piece, size_t row) {
    packed[row].push_back(piece);
    room[row] -= piece.length;
  };
  // Whole rows of long documents first.
  for (DocumentPiece& piece : pieces) {
    while (piece.length >= length) {
      SMP_CHECK(next < packed.size());
      if (piece.length == length) {
        put(piece, next++);
        piece.length = 0;
      } else {
        put(cut_front(piece, length), next++);
      }
    }
  }
  std::erase_if(pieces, [](const DocumentPiece& piece) { return piece.length == 0; });
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.length > b.length; });
  std::vector<DocumentPiece> left;
  for (const DocumentPiece& piece : pieces) {
    size_t best = packed.size();
    for (size_t row = next; row < packed.size(); ++row) {
      const bool fits = room[row] >= piece.length;
      if (fits && (best == packed.size() || room[row] < room[best])) best = row;
      if (fits && room[row] == piece.length) break;
    }
    if (best == packed.size()) {
      left.push_back(piece);
    } else {
      put(piece, best);
    }
  }
  size_t row = next;
  for (DocumentPiece& piece : left) {
    while (piece.length > 0) {
      while (row < packed.size() && room[row] == 0) ++row;
      SMP_CHECK(row < packed.size());
      if (piece.length <= room[row]) {
        put(piece, row);
        break;
      }
      put(cut_front(piece, room[row]), row);
    }
  }
  for (size_t i = 0; i < packed.size(); ++i) {
    SMP_CHECK_EQ(room[i], 0);
    tidy(packed[i]);
  }
  return packed;
}

}  // namespace smp
