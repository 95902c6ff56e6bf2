#pragma once

#include <cstdint>
#include <set>

#include "smp/launcher/job/host.h"

namespace smp::output {

// Hands standard input of smp-launch to ranks, no faster than the slowest of them reads. One
// thread.
class InputFeed {
 public:
  // `ranks`: none when nobody is to have it.
  InputFeed(job::Host& host, std::set<int> ranks) : host_(host), ranks_(std::move(ranks)) {}

  // To read from now; -1: nothing is wanted.
  int wanted() const;
  void read_some();
  void forget(int rank) { ranks_.erase(rank); }  // it has ended

 private:
  uint64_t room() const;  // bytes that each rank may be given now

  job::Host& host_;
  std::set<int> ranks_;
  uint64_t given_ = 0;
  bool over_ = false;
};

}  // namespace smp::output
