#include "smp/plan/data/packing.h"

#include <algorithm>

#include "smp/plan/base/check.h"

namespace smp::data {
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

// Pieces as they are dealt, each with its row.
struct Dealt {
  DocumentPiece piece;
  size_t row = 0;
};

// A length and a place in one number, so that numbers compare by length and then by place.
constexpr int kPlaceBits = 32;

uint64_t length_and_place(int64_t length, size_t place) {
  return static_cast<uint64_t>(length) << kPlaceBits | place;
}
int64_t length_of(uint64_t number) { return static_cast<int64_t>(number >> kPlaceBits); }
size_t place_of(uint64_t number) { return number & ((uint64_t{1} << kPlaceBits) - 1); }

// The rooms of the rows that are not full, the least in front, of two alike the first row's.
class Rooms {
 public:
  Rooms(size_t first, size_t rows, int64_t length) {
    for (size_t row = first; row < rows; ++row) rooms_.push_back(length_and_place(length, row));
  }

  // The row where a piece leaves the least room, which it then takes; false where it fits in none.
  bool take(int64_t length, size_t& row) {
    const auto best = std::lower_bound(rooms_.begin(), rooms_.end(), length_and_place(length, 0));
    if (best == rooms_.end()) return false;
    row = place_of(*best);
    const uint64_t left = length_and_place(length_of(*best) - length, row);
    const auto place = std::lower_bound(rooms_.begin(), best, left);
    std::move_backward(place, best, best + 1);
    *place = left;
    return true;
  }

  // By row.
  std::vector<int64_t> of_rows(size_t rows) const {
    std::vector<int64_t> rooms(rows);
    for (const uint64_t room : rooms_) rooms[place_of(room)] = length_of(room);
    return rooms;
  }

 private:
  std::vector<uint64_t> rooms_;
};

// Whole rows of long documents, from the first row on; returns how many. Pieces keep what is left.
size_t deal_whole_rows(std::vector<DocumentPiece>& pieces, int64_t length,
                       std::vector<Dealt>& dealt) {
  size_t next = 0;
  for (DocumentPiece& piece : pieces) {
    while (piece.length > length) dealt.push_back({cut_front(piece, length), next++});
    if (piece.length < length) continue;
    dealt.push_back({piece, next++});
    piece.length = 0;
  }
  std::erase_if(pieces, [](const DocumentPiece& piece) { return piece.length == 0; });
  return next;
}

// Places of the pieces, the longest first, of two alike the one in front.
std::vector<size_t> longest_first(const std::vector<DocumentPiece>& pieces, int64_t longest) {
  std::vector<size_t> order;
  order.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i)
    order.push_back(length_and_place(longest - pieces[i].length, i));
  std::sort(order.begin(), order.end());
  for (size_t& place : order) place = place_of(place);
  return order;
}

// Each row in the order of the stream; neighbours there are one piece again.
PackedRows tidied(const std::vector<Dealt>& dealt, size_t rows) {
  std::vector<size_t> ends(rows);
  for (const Dealt& one : dealt) ++ends[one.row];
  size_t sum = 0;
  for (size_t& end : ends) end = std::exchange(sum, sum + end);
  std::vector<DocumentPiece> pieces(dealt.size());
  for (const Dealt& one : dealt) pieces[ends[one.row]++] = one.piece;
  size_t kept = 0, begin = 0;
  for (size_t& end : ends) {
    const auto at = [&](size_t i) { return pieces.begin() + static_cast<std::ptrdiff_t>(i); };
    std::sort(at(begin), at(end), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    const size_t first = kept;
    for (size_t i = begin; i < end; ++i) {
      if (kept > first && !pieces[kept - 1].ends &&
          pieces[kept - 1].begin + pieces[kept - 1].length == pieces[i].begin) {
        pieces[kept - 1].length += pieces[i].length;
        pieces[kept - 1].ends = pieces[i].ends;
      } else {
        pieces[kept++] = pieces[i];
      }
    }
    begin = std::exchange(end, kept);
  }
  pieces.resize(kept);
  return {std::move(pieces), std::move(ends)};
}

}  // namespace

PackedRows pack_best_fit(std::vector<DocumentPiece> pieces, int64_t rows, int64_t length) {
  constexpr auto kMost = size_t{1} << (kPlaceBits - 1);
  const auto count = static_cast<size_t>(rows);
  SMP_CHECK(count < kMost && pieces.size() < kMost && length < int64_t{kMost});
  std::vector<Dealt> dealt;
  dealt.reserve(pieces.size() + 2 * count);
  const size_t whole = deal_whole_rows(pieces, length, dealt);
  SMP_CHECK(whole <= count);
  Rooms rooms(whole, count, length);
  std::vector<size_t> left;
  for (const size_t place : longest_first(pieces, length)) {
    size_t row = 0;
    if (rooms.take(pieces[place].length, row)) {
      dealt.push_back({pieces[place], row});
    } else {
      left.push_back(place);
    }
  }
  std::vector<int64_t> room = rooms.of_rows(count);
  size_t row = whole;
  for (const size_t place : left) {
    DocumentPiece& piece = pieces[place];
    while (piece.length > 0) {
      while (row < count && room[row] == 0) ++row;
      SMP_CHECK(row < count);
      const int64_t fits = std::min(piece.length, room[row]);
      room[row] -= fits;
      if (fits == piece.length) {
        dealt.push_back({piece, row});
        break;
      }
      dealt.push_back({cut_front(piece, fits), row});
    }
  }
  for (const int64_t empty : room) SMP_CHECK_EQ(empty, 0);
  return tidied(dealt, count);
}

std::shared_ptr<const PackedBlock> PackedBlocks::get(const void* owner, int64_t block,
                                                     const std::function<PackedBlock()>& make) {
  const Key key{owner, block};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = places_.find(key); found != places_.end()) {
      kept_.splice(kept_.begin(), kept_, found->second);
      return kept_.front().block;
    }
  }
  auto packed = std::make_shared<const PackedBlock>(make());
  const std::lock_guard lock(mutex_);
  if (packed->bytes() > kMostBytes || places_.contains(key)) return packed;
  kept_.push_front({key, packed});
  places_[key] = kept_.begin();
  bytes_ += packed->bytes();
  while (bytes_ > kMostBytes) {
    bytes_ -= kept_.back().block->bytes();
    places_.erase(kept_.back().key);
    kept_.pop_back();
  }
  return packed;
}

}  // namespace smp::data
