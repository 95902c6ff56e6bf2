#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "smp/plan/data/token_stream.h"

namespace smp::data {

// Number of windows whose documents are packed together.
inline constexpr int64_t kPackedTogether = 64;

// Rows of pieces, one behind the other. Immutable.
class PackedRows {
 public:
  // `ends`: of each row, the piece behind its last one.
  PackedRows(std::vector<DocumentPiece> pieces, std::vector<size_t> ends)
      : pieces_(std::move(pieces)), ends_(std::move(ends)) {}

  size_t size() const { return ends_.size(); }
  std::span<const DocumentPiece> operator[](size_t row) const {
    const size_t begin = row == 0 ? 0 : ends_[row - 1];
    return std::span(pieces_).subspan(begin, ends_[row] - begin);
  }
  int64_t bytes() const {
    return static_cast<int64_t>(pieces_.capacity() * sizeof(DocumentPiece) +
                                ends_.capacity() * sizeof(size_t));
  }

 private:
  std::vector<DocumentPiece> pieces_;
  std::vector<size_t> ends_;
};

// Puts pieces into `rows` rows of `length` tokens. The pieces have exactly that many tokens, so
// nothing is left over and no place stays empty. Best-fit decreasing (Johnson 1974; for training:
// Ding et al. 2024): the longest piece goes first, into the row with the least room left behind it.
// A piece that fits nowhere whole is cut to fill the room that is left. Each row is in the order of
// the stream. Pure; O(pieces log pieces).
PackedRows pack_best_fit(std::vector<DocumentPiece> pieces, int64_t rows, int64_t length);

// A packed block of windows, and the files that give the positions of its documents.
struct PackedBlock {
  PackedRows rows;
  std::vector<size_t> files;  // of OpenFiles

  int64_t bytes() const {
    return rows.bytes() +
           static_cast<int64_t>(files.capacity() * sizeof(size_t) + sizeof(PackedBlock));
  }
};

// The blocks that were packed last, so that samples of one block pack it once. A small corpus has
// all its blocks here. Safe from any thread.
class PackedBlocks {
 public:
  static constexpr int64_t kMostBytes = int64_t{8} << 20;  // of all that are kept

  // Block `block` of `owner`; the owner's address tells its blocks from those of others. make()
  // packs a block that is not kept. An exception of make() passes through.
  std::shared_ptr<const PackedBlock> get(const void* owner, int64_t block,
                                         const std::function<PackedBlock()>& make);

 private:
  using Key = std::pair<const void*, int64_t>;
  struct Kept {
    Key key;
    std::shared_ptr<const PackedBlock> block;
  };

  std::mutex mutex_;
  std::list<Kept> kept_;  // the one used last in front
  std::map<Key, std::list<Kept>::iterator> places_;
  int64_t bytes_ = 0;
};

}  // namespace smp::data
