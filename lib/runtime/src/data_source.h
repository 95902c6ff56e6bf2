#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "smp/plan/file_identity.h"
#include "smp/plan/plan.h"
#include "smp/runtime/engine.h"

namespace smp {

// What a model trains on: text for one that reads tokens, images for one that reads images.
// Immutable; safe from any thread.
class DataSource {
 public:
  virtual ~DataSource() = default;

  // Samples of a step's global batch, or of those held out for evaluation.
  virtual void read(int64_t step, int64_t first, int64_t count, const SampleBuffers& out) const = 0;
  virtual void read_held_out(int64_t first, int64_t count, const SampleBuffers& out) const = 0;

  // Without what is held out; a resumed run must find the same.
  virtual int64_t trained_size() const = 0;

  // What is trained on and evaluated on, as it was when it was opened.
  virtual std::vector<FileIdentity> files() const = 0;
};

// Throws as find_data_files() and read_image_file() do.
std::unique_ptr<DataSource> open_data(const Plan& plan);

}  // namespace smp
