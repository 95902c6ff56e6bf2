#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention_loops.h"
#include "kernels/attention_shape.h"
#include "kernels/block_product.h"

namespace smp::kernels {

// What the queries of a sample see of a block of keys: all keys of the sample, or those that a
// context-parallel rank has. Queries and keys are in the order of their positions. So the keys that
// a query sees are neighbours, and neither their begin nor their end falls from a query to the
// next.
class Sight {
 public:
  // Of a block with shape.keys keys of each sample, whose positions are `keys`.
  Sight(const AttentionShape& shape, int64_t sample, const model::TokenSlices& keys)
      : causal_(shape.causal),
        window_(shape.window),
        columns_(shape.keys),
        documents_(documents_of(shape, sample)),
        queries_(shape.slices),
        keys_(keys) {}

  // Query `query` sees the keys [begin(query), end(query)) of the block.
  int64_t begin(int64_t query) const {
    const int64_t document = documents_ != nullptr ? documents_[query] : 0;
    const int64_t window = window_ > 0 ? queries_.position(query) + 1 - window_ : 0;
    return keys_.rows_before(std::max(document, window));
  }
  int64_t end(int64_t query) const {
    return causal_ ? keys_.rows_before(queries_.position(query) + 1) : columns_;
  }
  // The first key that is worked on for the queries from `query` on.
  int64_t first(int64_t query) const { return begin(query) / kProductOverread * kProductOverread; }

  VisibleKeys of_strip(int64_t query, int64_t rows) const {
    VisibleKeys seen{.first = first(query), .keys = keys_};
    for (int64_t r = 0; r < rows; ++r) {
      seen.begin[r] = begin(query + r);
      seen.end[r] = end(query + r);
      seen.queries[r] = queries_.position(query + r);
    }
    seen.last = seen.end[rows - 1];
    return seen;
  }

  // The first query that may see key `key`.
  int64_t first_query(int64_t key) const {
    return causal_ ? queries_.rows_before(keys_.position(key)) : 0;
  }
  // The end of those queries of [begin, end) that see any key up to `key`: the documents behind do
  // not.
  int64_t seeing_end(int64_t begin, int64_t end, int64_t key) const {
    if (documents_ == nullptr) return end;
    return std::upper_bound(documents_ + begin, documents_ + end, keys_.position(key)) - documents_;
  }

  // Whether any of the queries [begin, end) sees a key of the block.
  bool sees_any(int64_t begin, int64_t end) const {
    for (int64_t query = begin; query < end; ++query) {
      if (this->begin(query) < this->end(query)) return true;
    }
    return false;
  }

 private:
  bool causal_;
  int64_t window_, columns_;
  const int64_t* documents_;  // of the sample; null: it is one
  model::TokenSlices queries_, keys_;
};

}  // namespace smp::kernels
