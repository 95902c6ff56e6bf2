#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smp/plan/data/token_samples.h"
#include "smp/plan/files/file_identity.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/engine/engine.h"

namespace smp::data {
class TokenData;
}

namespace smp::feed {

// What a model trains on: text or tokens for one that reads tokens, images for one that reads
// images. Immutable; safe from any thread.
class DataSource {
 public:
  virtual ~DataSource() = default;

  // Samples of a step's global batch, or of one evaluation on set `set` of evaluation_sets().
  virtual void read(int64_t step, int64_t first, int64_t count,
                    const engine::SampleBuffers& out) const = 0;
  virtual void read_held_out(size_t set, int64_t first, int64_t count,
                             const engine::SampleBuffers& out) const = 0;

  // The tokens that read() gives; null where it gives images.
  virtual const data::TokenData* tokens() const { return nullptr; }

  // Names of what is evaluated on; "" is a part of what is trained on. Empty: nothing is.
  virtual std::vector<std::string> evaluation_sets() const = 0;

  // Without what is held out; a resumed run must find the same.
  virtual int64_t trained_size() const = 0;

  // What is trained on, and what is evaluated on beside it, as it was when it was opened.
  virtual std::vector<files::FileIdentity> files() const = 0;
  virtual std::vector<files::FileIdentity> evaluation_files() const = 0;
};

data::TokenBuffers token_buffers(const engine::SampleBuffers& out);

// Throws as TokenData and read_image_file() do.
std::unique_ptr<DataSource> open_data(const Plan& plan);

}  // namespace smp::feed
