#include "segment/shared_job.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "smp/plan/base/check.h"
#include "waiting/futex.h"

namespace smp::segment {
namespace {

// Address space of a process: the smallest of x86-64 and aarch64 kernels.
constexpr size_t kUserAddresses = size_t(1) << 47;

size_t round_up(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

size_t blocks_begin(int size) {
  return round_up(sizeof(JobHeader) + size_t(size) * sizeof(RankBoard));
}

// Room for a table full of groups of all ranks of the host.
size_t blocks_end(int size, int ranks_here) {
  return blocks_begin(size) + size_t(mesh::kMaxGroups) * GroupBlock::bytes(ranks_here);
}

// Bytes that this process may still map.
size_t addresses_left() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const size_t most = limited ? std::min(size_t(limit.rlim_cur), kUserAddresses) : kUserAddresses;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;  // the first number: pages that are mapped
  const size_t mapped = pages * size_t(sysconf(_SC_PAGESIZE));
  return most > mapped ? most - mapped : 0;
}

// Held for a few stores. Throws CommError if the job has failed or the holder takes over `limit`.
class TableLock {
 public:
  TableLock(JobHeader& header, int rank, std::chrono::milliseconds limit) : header_(header) {
    const auto give_up = std::chrono::steady_clock::now() + limit;
    for (uint32_t free = 0; !header_.table_lock.compare_exchange_weak(free, uint32_t(rank) + 1);
         free = 0) {
      if (header_.failure.state.load() == FailureRecord::kWritten)
        throw comm::CommError(comm::CommError::Kind::kAborted, header_.failure.culprit,
                              header_.failure.text);
      if (free != 0 && std::chrono::steady_clock::now() > give_up)
        throw comm::CommError(
            comm::CommError::Kind::kTimeout, int(free) - 1,
            fmt::format(
                "rank {} made no progress for {} s while opening or closing a group of this job",
                free - 1, double(limit.count()) / 1000));
      sched_yield();
    }
  }
  ~TableLock() { header_.table_lock.store(0); }

 private:
  JobHeader& header_;
};

}  // namespace

size_t SharedJob::symmetric_bytes_per_rank(int ranks_here, size_t physical, size_t left) {
  const size_t all = std::min({size_t(ranks_here) * physical, 2 * physical, left / 8});
  return all / size_t(ranks_here) / kPageBytes * kPageBytes;
}

size_t SharedJob::bytes(int size, int ranks_here) {
  const size_t physical = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
  const size_t blocks = blocks_end(size, ranks_here), addresses = addresses_left();
  const size_t left = addresses > blocks ? addresses - blocks : 0;
  return blocks + size_t(ranks_here) * symmetric_bytes_per_rank(ranks_here, physical, left);
}

void SharedJob::prepare(Mapping& mapping, int size, int ranks_here) {
  auto& header = *reinterpret_cast<JobHeader*>(mapping.data());
  header.size = size;
  header.ranks_here = ranks_here;
  header.next_offset = blocks_begin(size);
  header.magic = kMagic;
}

SharedJob::SharedJob(Mapping mapping, int size) : mapping_(std::move(mapping)), size_(size) {
  boards_ = reinterpret_cast<RankBoard*>(mapping_.data() + sizeof(JobHeader));
  SMP_CHECK_EQ(header().magic, kMagic);
  SMP_CHECK_EQ(header().size, size);
  const SymmetricRegion region = symmetric();
  leave_out_of_dumps(region.begin, region.bytes_per_rank * size_t(header().ranks_here));
}

SymmetricRegion SharedJob::symmetric() const {
  const int ranks_here = header().ranks_here;
  const size_t begin = blocks_end(size_, ranks_here);
  return {mapping_.data() + begin, (mapping_.bytes() - begin) / size_t(ranks_here)};
}

int64_t SharedJob::offset_of(const void* p, int64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto base = reinterpret_cast<uintptr_t>(mapping_.data());
  if (address < base + blocks_end(size_, header().ranks_here) ||
      address + size_t(bytes) > base + mapping_.bytes())
    return -1;
  return int64_t(address - base);
}

void SharedJob::wake(int rank) const {
  RankBoard& b = board(rank);
  const uint32_t sleeper = b.sleeper.exchange(RankBoard::kNobody);
  if (sleeper == RankBoard::kNobody) return;
  auto& bell = sleeper == RankBoard::kThread ? b.thread_bell : b.waiter_bell;
  bell.fetch_add(1);
  waiting::futex_wake_all(bell);
  if (const waiting::Doorbell* other = doorbell(rank)) other->ring();
}

int SharedJob::open_group(uint64_t key, int group_size, int rank, std::chrono::milliseconds limit) {
  const size_t bytes = GroupBlock::bytes(group_size);
  TableLock lock(header(), rank, limit);
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
    if (header().entries == mesh::kMaxGroups ||
        header().next_offset + bytes > blocks_end(size_, header().ranks_here))
      throw std::runtime_error(
          fmt::format("no room for another group of {} ranks: the job has room for {} groups, and "
                      "{} (or groups split from them) are open: close groups of {} ranks first",
                      group_size, header().entries, open_groups(), group_size));
    spare = &header().groups[header().entries++];
    spare->size = group_size;
    spare->offset = header().next_offset;
    header().next_offset += bytes;
  }
  spare->state = GroupEntry::kUsed;
  spare->key = key;
  return int(spare - header().groups);
}

GroupBlock SharedJob::block(int place) const {
  const GroupEntry& entry = header().groups[place];
  return GroupBlock(mapping_.data() + entry.offset, entry.size);
}

int SharedJob::open_groups() const {
  return int(std::count_if(header().groups, header().groups + header().entries,
                           [](const GroupEntry& e) { return e.state == GroupEntry::kUsed; }));
}

void SharedJob::close_group(int place, int rank, std::chrono::milliseconds limit) {
  GroupEntry& entry = header().groups[place];
  if (int(entry.closes.fetch_add(1)) + 1 < entry.size) return;
  release(mapping_.data() + entry.offset, GroupBlock::bytes(entry.size));
  group_failure(place).state.store(FailureRecord::kNone);
  entry.closes.store(0);
  try {
    TableLock lock(header(), rank, limit);
    entry.state = GroupEntry::kSpare;
  } catch (const comm::CommError&) {  // the job has failed or will fail, so the place stays unused
  }
}

void SharedJob::set_remote_hosts(RemoteHosts* remote_hosts) {
  std::lock_guard guard(remote_hosts_mutex_);
  remote_hosts_ = remote_hosts;
}

void SharedJob::fail(FailureRecord& record, const Failure& failure) {
  std::lock_guard guard(remote_hosts_mutex_);
  if (remote_hosts_ == nullptr) return write(record, failure, failure.finder);
  Failure placed = failure;
  placed.text += remote_hosts_->place_of(failure.culprit);
  // Other hosts are told first. A rank that reads the failure here may end the group, and after
  // that the failure could not be sent. Later failures may only be consequences of the first one. A
  // record that is not completely written does not count, because its writer may have died before
  // it told other hosts.
  if (record.state.load() != FailureRecord::kWritten) remote_hosts_->failed(record, placed);
  write(record, placed, failure.finder);
}

void SharedJob::write(FailureRecord& record, const Failure& failure, int writer) {
  uint32_t none = FailureRecord::kNone;
  if (record.state.compare_exchange_strong(none, FailureRecord::being_written(writer))) {
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

std::optional<Failure> SharedJob::read(const FailureRecord& record) const {
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + std::chrono::milliseconds(100);
  for (;;) {
    const uint32_t state = record.state.load();
    if (state == FailureRecord::kNone) return std::nullopt;
    if (state == FailureRecord::kWritten)
      return Failure{comm::CommError::Kind(record.kind), record.culprit, record.finder,
                     record.text};
    if (steady_clock::now() > give_up) {
      const int writer = FailureRecord::writer_of(state);
      return Failure{comm::CommError::Kind::kAborted, writer, writer,
                     fmt::format("rank {} ended or was stopped while reporting a failure", writer)};
    }
    std::this_thread::yield();
  }
}

}  // namespace smp::segment
