#pragma once

#include <string>
#include <vector>

#include "smp/plan/data/token_stream.h"

namespace smp::data {

// The files that a path of a job names, and what they are.
struct FoundData {
  std::string folder;  // that they lie below, or the file
  DataFormat format = DataFormat::kText;
  std::vector<std::string> files;  // sorted; of Megatron the .bin
};

// Throws ConfigError, with key and path, for what is missing, of several formats or of one that
// cannot be told, and for folders whose training and validation files would be one stream.
FoundData find_data(const StreamRequest& request);

}  // namespace smp::data
