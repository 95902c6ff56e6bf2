#include "smp/comm/all_to_all_v.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace smp::comm {
namespace {

class AllOf final : public Work {
 public:
  explicit AllOf(std::vector<WorkPtr> works) : works_(std::move(works)) {}

  bool done() override {
    return std::ranges::all_of(works_, [](const WorkPtr& work) { return work->done(); });
  }
  void wait() override {
    for (const WorkPtr& work : works_) work->wait();
  }

 private:
  const std::vector<WorkPtr> works_;
};

void check(const Communicator& group, std::span<const int64_t> sent, std::span<const int64_t> come,
           std::string_view label) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(fmt::format("all_to_all_v '{}': {}", label, why));
  };
  const auto size = static_cast<size_t>(group.size());
  if (sent.size() != size || come.size() != size) {
    refuse(fmt::format("{} and {} counts for {} ranks", sent.size(), come.size(), size));
  }
  for (size_t rank = 0; rank < size; ++rank) {
    if (sent[rank] < 0 || come[rank] < 0) {
      refuse(
          fmt::format("rank {} has a part of {} elements", rank, std::min(sent[rank], come[rank])));
    }
  }
  const auto own = static_cast<size_t>(group.rank());
  if (sent[own] != come[own]) {
    refuse(
        fmt::format("rank {} sends {} elements to itself and takes {}", own, sent[own], come[own]));
  }
}

// Where each rank's part begins; bytes.
std::vector<int64_t> begins_of(std::span<const int64_t> counts, int64_t element) {
  std::vector<int64_t> begins;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    begins.push_back(begin);
    begin += count * element;
  }
  return begins;
}

}  // namespace

WorkPtr all_to_all_v(Communicator& group, const void* in, std::span<const int64_t> sent, void* out,
                     std::span<const int64_t> come, DType dtype, std::string_view label) {
  check(group, sent, come, label);
  const int64_t element = bytes_of(dtype);
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  const std::vector<int64_t> sent_begins = begins_of(sent, element);
  const std::vector<int64_t> come_begins = begins_of(come, element);
  std::vector<WorkPtr> works;
  // Each rank begins with its next one, so that no rank is everybody's first.
  const int size = group.size(), own = group.rank();
  for (int step = 1; step < size; ++step) {
    const int source = (own + size - step) % size, target = (own + step) % size;
    const auto source_at = static_cast<size_t>(source), target_at = static_cast<size_t>(target);
    if (come[source_at] > 0) {
      works.push_back(
          group.recv(to + come_begins[source_at], come[source_at], dtype, source, label));
    }
    if (sent[target_at] > 0) {
      works.push_back(
          group.send(from + sent_begins[target_at], sent[target_at], dtype, target, label));
    }
  }
  const auto own_at = static_cast<size_t>(own);
  if (sent[own_at] > 0) {
    std::memcpy(to + come_begins[own_at], from + sent_begins[own_at],
                static_cast<size_t>(sent[own_at] * element));
  }
  return std::make_shared<AllOf>(std::move(works));
}

}  // namespace smp::comm
