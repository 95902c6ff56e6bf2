#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace smp::kernels {

// The documents of a call of attention as kernels for packed sequences want them, those of all
// samples one after the other.
struct DocumentPlaces {
  std::vector<int32_t> begins;  // among the batch's tokens; behind the last the number of these
  int64_t longest = 0;
};

// Of a shape that has documents; read on the host.
inline DocumentPlaces document_places(const AttentionShape& shape) {
  DocumentPlaces places;
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
