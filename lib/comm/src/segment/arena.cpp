#include "segment/arena.h"

#include <fmt/format.h>

#include <iterator>
#include <new>
#include <string>

namespace smp::segment {
namespace {

class PartIsFull final : public std::bad_alloc {
 public:
  PartIsFull(size_t wanted, size_t part)
      : text_(std::make_shared<std::string>(
            fmt::format("no addresses for {} more bytes of symmetric memory: the rank has "
                        "addresses for {} bytes, which is twice its share of the host's memory, or "
                        "less with `ulimit -v` or many jobs",
                        wanted, part))) {}
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<std::string> text_;  // a copy of an exception may not throw
};

}  // namespace

Arena::Arena(std::shared_ptr<SharedJob> job, int rank_here) : job_(std::move(job)) {
  const SymmetricRegion region = job_->symmetric();
  gaps_[region.begin + size_t(rank_here) * region.bytes_per_rank] = region.bytes_per_rank;
}

std::shared_ptr<std::byte[]> Arena::allocate(int64_t bytes) {
  const size_t wanted = (size_t(bytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (wanted == 0) return nullptr;
  std::byte* begin = nullptr;
  {
    std::lock_guard guard(mutex_);
    auto best = gaps_.end();  // the smallest gap that is large enough
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
      if (gap->second >= wanted && (best == gaps_.end() || gap->second < best->second)) best = gap;
    if (best == gaps_.end()) throw PartIsFull(wanted, job_->symmetric().bytes_per_rank);
    begin = best->first;
    const size_t left = best->second - wanted;
    gaps_.erase(best);
    if (left > 0) gaps_[begin + wanted] = left;
  }
  std::shared_ptr<std::byte[]> block(
      begin, [self = shared_from_this(), wanted](std::byte* p) { self->free(p, wanted); });
  populate(begin, wanted);
  return block;
}

void Arena::free(std::byte* begin, size_t bytes) {
  if (!creator_.is_here()) return;
  release(begin, bytes);
  std::lock_guard guard(mutex_);
  auto gap = gaps_.emplace(begin, bytes).first;
  const auto after = std::next(gap);
  if (after != gaps_.end() && begin + bytes == after->first) {
    gap->second += after->second;
    gaps_.erase(after);
  }
  if (gap == gaps_.begin()) return;
  const auto before = std::prev(gap);
  if (before->first + before->second != begin) return;
  before->second += gap->second;
  gaps_.erase(gap);
}

}  // namespace smp::segment
