#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp::testing {

// Elements in symmetric memory or, where a rank is to have none, in its own.
class Buffer {
 public:
  Buffer(comm::Communicator& comm, int64_t count, bool symmetric)
      : own_(size_t(symmetric ? 0 : count)) {
    if (symmetric) shared_ = comm.allocate_symmetric(count * 4);
  }
  float* data() { return shared_ ? reinterpret_cast<float*>(shared_.get()) : own_.data(); }
  float& operator[](int64_t i) { return data()[i]; }

 private:
  std::shared_ptr<std::byte[]> shared_;
  std::vector<float> own_;
};

}  // namespace smp::testing
