#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"

namespace smp {

struct DataSpeedRequest {
  int64_t rank = -1;  // -1: the first one that reads
  int repeats = 5;
  double seconds = 1;  // about, of each repeat
};

// How fast a rank's batches come, read ahead as in training, with nothing computed.
struct DataSpeed {
  int64_t rank = 0, ranks = 0;
  std::string batch;        // in words
  std::string description;  // of the data, a line for each source
  std::string pack;
  int64_t batch_tokens = 0;  // of the rank's, in a step
  int64_t steps = 0;         // of each repeat
  double first_tokens_per_s = 0;
  std::vector<double> tokens_per_s;  // of each repeat

  double median_tokens_per_s() const;
};

// Reads the same steps again and again: the first time, which is measured apart, the files may have
// to come from the disk. Throws ConfigError for a plan that reads no tokens or a rank that it does
// not have, and as TokenData does.
DataSpeed measure_data(const Plan& plan, const DataSpeedRequest& request);

std::string to_text(const DataSpeed& speed);
std::string to_json(const DataSpeed& speed);

}  // namespace smp
