#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/mesh/collective.h"

// Checks of arguments, the same for all communicators. All throw std::invalid_argument.
namespace smp::comm {

void check_count(mesh::CollectiveOp op, std::string_view label, int64_t count);
// For reductions, which access elements; other calls move bytes. `what`: the input or the output.
void check_aligned(mesh::CollectiveOp op, std::string_view label, const char* what,
                   const void* buffer, DType dtype);
void check_divisible(std::string_view label, int64_t count, int size);
void check_root(mesh::CollectiveOp op, std::string_view label, int root, int size);
void check_peer(mesh::CollectiveOp op, std::string_view label, int peer, int rank, int size);
void check_rank(int rank, int size);
// The index of `rank` in `members`.
int place_in(const std::vector<int>& members, int rank, int size);

}  // namespace smp::comm
