#pragma once

#include <cstddef>
#include <cstdint>

#include "smp/comm/communicator.h"

namespace smp {

// What ranks give to a call whose results are checked: small whole numbers, of which every type
// holds all sums, products and averages of 256 ranks exactly. So results are compared bit by bit.
class Pattern {
 public:
  Pattern(DType dtype, comm::ReduceOp reduction, int ranks)
      : dtype_(dtype), reduction_(reduction), ranks_(ranks) {}

  int given(int rank, int64_t i) const;  // element i of what a rank gives
  int reduced(int64_t i) const;          // what those of all ranks come to

  void write(std::byte* at, int64_t i, int value) const;  // element i of a buffer
  bool is(const std::byte* at, int64_t i, int value) const;

 private:
  uint64_t bits_of(int value) const;

  const DType dtype_;
  const comm::ReduceOp reduction_;
  const int ranks_;
};

}  // namespace smp
