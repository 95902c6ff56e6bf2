#pragma once

#include <string>
#include <vector>

#include "smp/plan/data/stream_request.h"

namespace smp::data {

// The files that a path of a job names, and their format.
struct FoundData {
  std::string folder;  // that they lie below, or the file
  DataFormat format = DataFormat::kText;
  std::vector<std::string> files;  // sorted; of Megatron the .bin
};

// Throws ConfigError, with key and path, if files are missing, have several formats or an unknown
// one, or a folder's training and validation files would be one stream.
FoundData find_data(const StreamRequest& request);

}  // namespace smp::data
