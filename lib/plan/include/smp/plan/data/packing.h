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

// Windows whose documents are dealt to each other's places.
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

// Puts pieces into `rows` rows of `length` tokens, of which there are as many as the pieces have:
// nothing is left over and no place stays empty. Best-fit decreasing (Johnson 1974; for training:
// Ding et al. 2024): the longest piece first, where the least room is left behind it; what fits
// nowhere whole is cut to fill the room that is left. Each row is in the order of the stream. Pure;
// O(pieces log pieces).
PackedRows pack_best_fit(std::vector<DocumentPiece> pieces, int64_t rows, int64_t length);

// A block of windows whose documents were dealt, and the files that said where these lie.
struct PackedBlock {
  PackedRows rows;
  std::vector<size_t> files;  // of OpenFiles

  int64_t bytes() const {
    return rows.bytes() +
           static_cast<int64_t>(files.capacity() * sizeof(size_t) + sizeof(PackedBlock));
  }
};

// The blocks of windows that were packed last, so that samples of one block pack it once. Of a
// small corpus these are all blocks. Safe from any thread.
class PackedBlocks {
 public:
  static constexpr int64_t kMostBytes = int64_t{8} << 20;  // of all that are kept

  // Block `block` of `owner`, whose address tells its blocks from those of others. make() packs it
  // where it is not kept; what make() throws is thrown.
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
