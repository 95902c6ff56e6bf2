#pragma once

#include <string>
#include <vector>

#include "comm/any_call.h"

// What one rank may call otherwise than the others: op, count, type, reduction, root and order.
namespace smp::testing {

using Calls = std::vector<AnyCall>;

struct Difference {
  const char* what;  // "op", "count", ...
  Calls usual, odd;
};
// Each kind for every operation that has it; roots are 0 and `other_root`.
std::vector<Difference> all_differences(int other_root);
std::string text_of(const Difference& difference);

// One after the other, in symmetric memory if so; then a barrier, which ends whoever has no part in
// what differs.
void run_calls(comm::Communicator& comm, const Calls& calls, bool is_symmetric);

// What is wrong with the error that a rank of `size` heard, which must name both sides; "" if
// nothing. Who has no part in what differs may have gone on: then it has the odd call and its own.
std::string wrong_with(const std::string& error, const Difference& difference, int size);

}  // namespace smp::testing
