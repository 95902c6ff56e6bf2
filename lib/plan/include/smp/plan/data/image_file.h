#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// Images to train on, in a text file. A line holds channels x height x width numbers from 0 to
// training.data.images.largest, then the label, separated by commas. The dry run and the runtime
// read the file alike.
namespace smp::data {

struct ImageFile {
  std::string path;
  std::vector<float> pixels;    // one image after the other, -1 to 1
  std::vector<int32_t> labels;  // 0 to vocab_size - 1
  int64_t bytes = 0;            // of the file
  int64_t trained = 0;          // of the images, without those that are held out at the end

  int64_t images() const { return static_cast<int64_t>(labels.size()); }
};

// Throws ConfigError, with path and line, if the file is missing, a line is torn, has another size
// or holds no number in the range, or no image is left to train on.
ImageFile read_image_file(const JobSpec& job);

}  // namespace smp::data
