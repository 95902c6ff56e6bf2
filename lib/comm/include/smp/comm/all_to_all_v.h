#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "smp/comm/communicator.h"

namespace smp::comm {

// An all_to_all of parts of different lengths (MPI_Alltoallv), by a send to and a receive from each
// other rank of the group that has a part. `in` holds the parts for each rank and `out` those from
// each, in rank order, one behind the other; `sent` and `come` say how many elements each has, and
// the ranks must agree on them. The buffers must not overlap, and live until the Work is done. This
// rank's own part is copied at once: both are host memory. Throws std::invalid_argument where the
// counts are not one for each rank, are below 0, or the rank's two own ones differ.
WorkPtr all_to_all_v(Communicator& group, const void* in, std::span<const int64_t> sent, void* out,
                     std::span<const int64_t> come, DType dtype, std::string_view label);

}  // namespace smp::comm
