#include "arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace smp::comm {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw std::invalid_argument(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace

void check_count(mesh::CollectiveOp op, std::string_view label, int64_t count) {
  if (count < 0)
    refuse("{} '{}': expected a count of at least 0, not {}", name_of(op), label, count);
}

void check_aligned(mesh::CollectiveOp op, std::string_view label, const char* what,
                   const void* buffer, DType dtype) {
  const int64_t element = bytes_of(dtype);
  if (reinterpret_cast<uintptr_t>(buffer) % static_cast<uintptr_t>(element) != 0)
    refuse("{} '{}': the address of the {} is not a multiple of the {} bytes of {}", name_of(op),
           label, what, element, name_of(dtype));
}

void check_divisible(std::string_view label, int64_t count, int size) {
  if (count % size != 0)
    refuse("reduce_scatter '{}': the count {} is not divisible by the {} ranks of the group", label,
           count, size);
}

void check_root(mesh::CollectiveOp op, std::string_view label, int root, int size) {
  if (root < 0 || root >= size)
    refuse("{} '{}': root {} is not in the group of {} ranks", name_of(op), label, root, size);
}

void check_peer(mesh::CollectiveOp op, std::string_view label, int peer, int rank, int size) {
  if (peer < 0 || peer >= size)
    refuse("{} '{}': rank {} is not in the group of {} ranks", name_of(op), label, peer, size);
  if (peer == rank) refuse("{} '{}': rank {} is the caller itself", name_of(op), label, rank);
}

void check_rank(int rank, int size) {
  if (rank < 0 || rank >= size) refuse("rank {} is not in the group of {} ranks", rank, size);
}

int place_in(const std::vector<int>& members, int rank, int size) {
  for (auto it = members.begin(); it != members.end(); ++it) {
    check_rank(*it, size);
    if (std::find(members.begin(), it, *it) != it) refuse("split: rank {} is given twice", *it);
  }
  const auto place = std::find(members.begin(), members.end(), rank);
  if (place == members.end()) refuse("split: the calling rank {} is not one of the members", rank);
  return int(place - members.begin());
}

}  // namespace smp::comm
