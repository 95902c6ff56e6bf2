#include "job.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "futex.h"
#include "smp/plan/check.h"

namespace smp::shm {
namespace {

constexpr size_t kBlockBytesPerRank = 96 << 20;    // address space, not memory
constexpr size_t kAddressBytes = size_t(1) << 46;  // what the symmetric region takes at most

size_t round_up(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

size_t blocks_begin(int size) {
  return round_up(sizeof(JobHeader) + size_t(size) * sizeof(RankBoard));
}

size_t blocks_end(int size) { return blocks_begin(size) + size_t(size) * kBlockBytesPerRank; }

// What a limit of addresses leaves beside so many.
size_t beside(size_t taken, const rlimit& limit) {
  return limit.rlim_cur > taken ? size_t(limit.rlim_cur) - taken : 0;
}

// All the memory of the machine, if the process may address that much.
size_t symmetric_bytes_per_rank(int size) {
  size_t bytes = std::min(kAddressBytes / size_t(size),
                          size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE)));
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    bytes = std::min(bytes, beside(blocks_end(size), limit) / 2 / size_t(size));
  return bytes / kPageBytes * kPageBytes;
}

class TableLock {
 public:
  explicit TableLock(JobHeader& header) : header_(header) {
    while (header_.table_lock.exchange(1) != 0) {
      if (header_.failure.state.load() == FailureRecord::kWritten)
        throw CommError(CommError::Kind::kAborted, header_.failure.culprit, header_.failure.text);
      sched_yield();
    }
  }
  ~TableLock() { header_.table_lock.store(0); }

 private:
  JobHeader& header_;
};

}  // namespace

size_t Job::bytes(int size) {
  return blocks_end(size) + size_t(size) * symmetric_bytes_per_rank(size);
}

void Job::prepare(Mapping& mapping, int size) {
  auto& header = *reinterpret_cast<JobHeader*>(mapping.data());
  header.size = size;
  header.next_offset = blocks_begin(size);
  header.magic = kMagic;
}

Job::Job(Mapping mapping, int size) : mapping_(std::move(mapping)), size_(size) {
  boards_ = reinterpret_cast<RankBoard*>(mapping_.data() + sizeof(JobHeader));
  SMP_CHECK_EQ(header().magic, kMagic);
  SMP_CHECK_EQ(header().size, size);
  const SymmetricRegion region = symmetric();
  leave_out_of_dumps(region.begin, region.bytes_per_rank * size_t(size));
}

SymmetricRegion Job::symmetric() const {
  const size_t begin = blocks_end(size_);
  return {mapping_.data() + begin, (mapping_.bytes() - begin) / size_t(size_)};
}

int64_t Job::offset_of(const void* p, int64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto base = reinterpret_cast<uintptr_t>(mapping_.data());
  if (address < base + blocks_end(size_) || address + size_t(bytes) > base + mapping_.bytes())
    return -1;
  return int64_t(address - base);
}

void Job::wake(int rank) const {
  RankBoard& b = board(rank);
  const uint32_t sleeper = b.sleeper.exchange(RankBoard::kNobody);
  if (sleeper == RankBoard::kNobody) return;
  auto& bell = sleeper == RankBoard::kThread ? b.thread_bell : b.waiter_bell;
  bell.fetch_add(1);
  futex_wake_all(bell);
  if (const Doorbell* other = doorbell(rank)) other->ring();
}

int Job::open_group(uint64_t key, int group_size) {
  const size_t bytes = GroupBlock::bytes(group_size);
  TableLock lock(header());
  GroupEntry* spare = nullptr;
  for (int i = 0; i < header().entries; ++i) {
    GroupEntry& entry = header().groups[i];
    if (entry.state == GroupEntry::kUsed && entry.key == key) {
      SMP_CHECK_EQ(entry.size, group_size);
      return i;
    }
    if (entry.state == GroupEntry::kSpare && entry.size == group_size && !spare) spare = &entry;
  }
  if (spare == nullptr) {
    if (header().entries == kMaxGroups || header().next_offset + bytes > blocks_end(size_))
      throw std::runtime_error(
          fmt::format("no room for another group of {} ranks: {} groups are open in this job, or "
                      "others that were "
                      "split off them; close some first",
                      group_size, header().entries));
    spare = &header().groups[header().entries++];
    spare->size = group_size;
    spare->offset = header().next_offset;
    header().next_offset += bytes;
  }
  spare->state = GroupEntry::kUsed;
  spare->key = key;
  return int(spare - header().groups);
}

GroupBlock Job::block(int place) const {
  const GroupEntry& entry = header().groups[place];
  return GroupBlock(mapping_.data() + entry.offset, entry.size);
}

void Job::close_group(int place) {
  GroupEntry& entry = header().groups[place];
  if (int(entry.closes.fetch_add(1)) + 1 < entry.size) return;
  release(mapping_.data() + entry.offset, GroupBlock::bytes(entry.size));
  group_failure(place).state.store(FailureRecord::kNone);
  entry.closes.store(0);
  try {
    TableLock lock(header());
    entry.state = GroupEntry::kSpare;
  } catch (const CommError&) {  // the job has failed: nobody takes the place
  }
}

void Job::set_outside(Outside* outside) {
  std::lock_guard guard(outside_mutex_);
  outside_ = outside;
}

void Job::fail(FailureRecord& record, const Failure& failure) {
  std::lock_guard guard(outside_mutex_);
  if (outside_ == nullptr) return write(record, failure);
  Failure placed = failure;
  placed.text += outside_->place_of(failure.culprit);
  // First outside: who reads it here may end the group, of which nobody could be told then. What
  // is found later may only be what the first has done to the ranks of this host.
  // Whoever began to write one may have died in it, and then nobody has been told.
  if (record.state.load() != FailureRecord::kWritten) outside_->failed(record, placed);
  write(record, placed);
}

void Job::write(FailureRecord& record, const Failure& failure) {
  uint32_t none = FailureRecord::kNone;
  if (record.state.compare_exchange_strong(none, FailureRecord::kBeingWritten)) {
    record.kind = int32_t(failure.kind);
    record.culprit = failure.culprit;
    record.finder = failure.finder;
    const size_t length = std::min(failure.text.size(), sizeof(record.text) - 1);
    memcpy(record.text, failure.text.data(), length);
    record.text[length] = 0;
    record.state.store(FailureRecord::kWritten);
  }
  header().failures.fetch_add(1);
  for (int rank = 0; rank < size_; ++rank) ring(rank);
}

std::optional<Failure> Job::read(const FailureRecord& record) const {
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + std::chrono::milliseconds(100);
  for (;;) {
    switch (record.state.load()) {
      case FailureRecord::kNone: return std::nullopt;
      case FailureRecord::kWritten:
        return Failure{CommError::Kind(record.kind), record.culprit, record.finder, record.text};
      default: break;
    }
    if (steady_clock::now() > give_up)
      return Failure{CommError::Kind::kAborted, -1, -1, "a rank died while it reported a failure"};
    std::this_thread::yield();
  }
}

}  // namespace smp::shm
