#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "segment/job.h"

namespace smp::groups {

// A failure that a group must know of: its own, that of a group that it was split off, or the
// job's. The last holder of a record gives its place back.
using RecordPtr = std::shared_ptr<segment::FailureRecord>;

// The failures of groups between hosts, by the groups' keys, as one rank knows them. All ranks of a
// group hear of its failure, also those that open the group later or have ended it: for the latter
// 1 KiB stays for each failure. Any thread.
class GroupFailures {
 public:
  // Once for each key. The record must be dropped before this object.
  RecordPtr open(uint64_t key) {
    return {&at(key), [this, key](segment::FailureRecord*) {
              std::lock_guard guard(mutex_);
              records_.erase(key);
            }};
  }
  // A failure that another rank has told of.
  void write(segment::Job& job, uint64_t key, const segment::Failure& failure) {
    std::lock_guard guard(mutex_);
    job.write(records_[key], failure, failure.finder);
  }
  // Nothing if the record is not one of these.
  std::optional<uint64_t> key_of(const segment::FailureRecord& record) {
    std::lock_guard guard(mutex_);
    for (const auto& [key, known] : records_)
      if (&known == &record) return key;
    return std::nullopt;
  }

 private:
  segment::FailureRecord& at(uint64_t key) {
    std::lock_guard guard(mutex_);
    return records_[key];
  }

  std::mutex mutex_;
  std::map<uint64_t, segment::FailureRecord> records_;
};

}  // namespace smp::groups
