#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "segment/shared_job.h"

namespace smp::groups {

// The record of a failure that a group must know: its own, its parent group's, or the job's. The
// last holder of a record frees it.
using RecordPtr = std::shared_ptr<segment::FailureRecord>;

// The failures of groups between hosts, by the groups' keys, as one rank knows them. All ranks of a
// group learn of its failure, also ranks that open the group later or have ended it. For ranks that
// have ended the group, each failure keeps 1 KiB. Any thread.
class GroupFailures {
 public:
  // Once for each key. The record must be dropped before this object.
  RecordPtr open(uint64_t key) {
    return {&at(key), [this, key](segment::FailureRecord*) {
              std::lock_guard guard(mutex_);
              records_.erase(key);
            }};
  }
  // Records a failure that another rank has reported.
  void write(segment::SharedJob& job, uint64_t key, const segment::Failure& failure) {
    std::lock_guard guard(mutex_);
    job.write(records_[key], failure, failure.finder);
  }
  // Nothing if the record does not belong to a group between hosts.
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
