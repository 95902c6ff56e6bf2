#pragma once

#include <algorithm>
#include <cstdint>

// How context-parallel ranks share the tokens of a sample.
namespace smp::model {

// The tokens of a sample that a rank has: a slice from `early` on and one from `late` on, each of
// `length` tokens. The rank's row i of the sample is the token at position(i).
struct TokenSlices {
  int64_t early = 0;
  int64_t late = 0;
  int64_t length = 0;  // 0: the rank has all tokens

  constexpr bool are_whole() const { return length == 0; }
  constexpr int64_t position(int64_t row) const {
    if (length == 0) return row;
    return row < length ? early + row : late + row - length;
  }
  // Those of the rank's tokens that come before `position`.
  constexpr int64_t rows_before(int64_t position) const {
    if (length == 0) return position;
    return std::clamp<int64_t>(position - early, 0, length) +
           std::clamp<int64_t>(position - late, 0, length);
  }
  // The rows from `row` on whose positions follow each other, up to `end`.
  constexpr int64_t neighbours(int64_t row, int64_t end) const {
    return std::min(end, row < length ? length : end) - row;
  }
  bool operator==(const TokenSlices&) const = default;
};

// A rank's place among those that share a sequence. `ring` ranks pass keys and values on; at each
// place of the ring `exchange` ranks exchange heads by all-to-all. Their product is the context
// degree.
struct ContextPlace {
  int64_t ring = 1, ring_rank = 0;
  int64_t exchange = 1, exchange_rank = 0;

  constexpr int64_t degree() const { return ring * exchange; }
  bool operator==(const ContextPlace&) const = default;
};

// A sample is cut into 2 x ring slices. Place r of the ring takes slices r and 2 x ring - 1 - r, so
// that each has the same work under a causal mask; its ranks divide both (Brandon et al. 2023,
// arXiv:2311.09431, in blocks instead of stripes). `sequence`: a multiple of twice the degree.
constexpr TokenSlices token_slices(int64_t sequence, const ContextPlace& place) {
  if (place.degree() == 1) return {};
  const int64_t slice = sequence / (2 * place.ring), length = slice / place.exchange;
  const int64_t inside = place.exchange_rank * length;
  return {place.ring_rank * slice + inside, (2 * place.ring - 1 - place.ring_rank) * slice + inside,
          length};
}

// Those of all ranks of its place, which have them together while they attend.
constexpr TokenSlices ring_slices(int64_t sequence, const ContextPlace& place) {
  return token_slices(sequence, {place.ring, place.ring_rank});
}

}  // namespace smp::model
