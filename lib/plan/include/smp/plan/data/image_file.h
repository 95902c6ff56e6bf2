#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// Images to train on: a text file, a line for each, of channels x height x width numbers from 0 to
// training.data.images.largest and the label, separated by commas. The dry run and the runtime read
// it alike.
namespace smp::data {

struct ImageFile {
  std::string path;
  std::vector<float> pixels;    // one image after the other, -1 to 1
  std::vector<int32_t> labels;  // 0 to vocab_size - 1
  int64_t bytes = 0;            // of the file
  int64_t trained = 0;          // of the images, without those that are held out at the end

  int64_t images() const { return static_cast<int64_t>(labels.size()); }
};

// Throws ConfigError, with path and line, for what is missing, torn, of another size, or no number
// in the range; and where nothing is left to train on.
ImageFile read_image_file(const JobSpec& job);

}  // namespace smp::data
