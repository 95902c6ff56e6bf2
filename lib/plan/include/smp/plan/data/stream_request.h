#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

namespace smp::data {

// How to open a stream, for a job or an evaluation set.
struct StreamRequest {
  std::string path;  // as training.data.path
  std::optional<DataFormat> format;
  std::vector<std::string> suffixes;  // files of a folder that count
  std::optional<int64_t> end_of_document;
  std::optional<bool> loss_mask;           // training.data.loss_mask
  int64_t vocab_size = 0;                  // of the model
  std::string key = "training.data.path";  // for messages
};

}  // namespace smp::data
