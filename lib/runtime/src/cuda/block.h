#pragma once

#include <cstdint>

#include "anywhere.h"

// The body of a CUDA kernel is written once, against a Block: the threads that work on one piece
// together. On a GPU that is a thread block (device_block.cuh); in tests a few host threads with a
// barrier play its part, so that indices, arithmetic and exchanges are checked where no GPU is. A
// Block has
//   index(), count()     its place among the blocks of the launch
//   thread(), threads()  this thread's place in it
//   sum(v), maximum(v)   over its threads, the same bits for each; all of them call alike
namespace smp::cuda {

// Calls body(i) for the i < count of this thread, where the launch's threads share them.
template <typename Block, typename Body>
SMP_ANYWHERE void for_each(const Block& block, int64_t count, const Body& body) {
  const int64_t step = block.count() * block.threads();
  for (int64_t i = block.index() * block.threads() + block.thread(); i < count; i += step) body(i);
}

// The same for the rows of a matrix, a block to each: body(row) runs on all threads of the block.
template <typename Block, typename Body>
SMP_ANYWHERE void for_each_row(const Block& block, int64_t rows, const Body& body) {
  for (int64_t row = block.index(); row < rows; row += block.count()) body(row);
}

// And for the columns of one row: body(c).
template <typename Block, typename Body>
SMP_ANYWHERE void for_each_column(const Block& block, int64_t cols, const Body& body) {
  for (int64_t c = block.thread(); c < cols; c += block.threads()) body(c);
}

}  // namespace smp::cuda
