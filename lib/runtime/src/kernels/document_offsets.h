#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace smp::kernels {

// The documents of a call of attention in the form that kernels for packed sequences take
// (cu_seqlens, max_seqlen), those of all samples one after the other.
struct DocumentOffsets {
  std::vector<int32_t> begins;  // first tokens in the batch; the number of tokens at the end
  int64_t longest = 0;
};

// Of a shape that has documents; read on the host.
inline DocumentOffsets document_offsets(const AttentionShape& shape) {
  DocumentOffsets places;
  const int64_t tokens = shape.batch * shape.sequence;
  for (int64_t token = 0; token < tokens; ++token) {
    if (shape.documents_on_host[token] != token % shape.sequence) continue;
    places.begins.push_back(static_cast<int32_t>(token));
  }
  places.begins.push_back(static_cast<int32_t>(tokens));
  for (size_t i = 1; i < places.begins.size(); ++i) {
    places.longest = std::max<int64_t>(places.longest, places.begins[i] - places.begins[i - 1]);
  }
  return places;
}

}  // namespace smp::kernels
