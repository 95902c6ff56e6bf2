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

// The training and evaluation data of a job: tokens for a model that reads tokens, images for one
// that reads images. Immutable; safe from any thread.
class DataSource {
 public:
  virtual ~DataSource() = default;

  // Read samples of a step's global batch, or held-out samples of set `set` of evaluation_sets().
  virtual void read(int64_t step, int64_t first, int64_t count,
                    const engine::SampleBuffers& out) const = 0;
  virtual void read_held_out(size_t set, int64_t first, int64_t count,
                             const engine::SampleBuffers& out) const = 0;

  // The token data of read(); null for images.
  virtual const data::TokenData* tokens() const { return nullptr; }

  // Names of the evaluation sets; "" is held out from the training data. Empty: no evaluation.
  virtual std::vector<std::string> evaluation_sets() const = 0;

  // The size of the training data without the held-out part; a resumed run must find the same.
  virtual int64_t trained_size() const = 0;

  // Identities of the training files, and of separate evaluation files, as they were when opened.
  virtual std::vector<files::FileIdentity> files() const = 0;
  virtual std::vector<files::FileIdentity> evaluation_files() const = 0;
};

data::TokenBuffers token_buffers(const engine::SampleBuffers& out);

// Throws what TokenData and read_image_file() throw.
std::unique_ptr<DataSource> open_data(const Plan& plan);

}  // namespace smp::feed
