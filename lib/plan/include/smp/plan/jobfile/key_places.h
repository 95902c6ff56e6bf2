#pragma once

#include <map>
#include <string>
#include <string_view>

#include "smp/plan/jobfile/job_source.h"

// Where a job file, or the job within a plan, sets its keys: for remarks on a key that was read
// long ago. Immutable; any thread.
namespace smp::jobfile {

// Lines and columns (of bytes) count from 1.
struct KeyPlace {
  int line = 1;
  int column = 1;
};

class KeyPlaces {
 public:
  // A text that is no YAML has no keys.
  explicit KeyPlaces(const JobSource& source);

  // Of "parallel.tensor_parallel_degree": the key; where the file does not set it, the nearest
  // section above it that the file has, as `cluster: p5.48xlarge`; else the first line.
  KeyPlace of(std::string_view path) const;

 private:
  std::map<std::string, KeyPlace, std::less<>> places_;  // by path
};

}  // namespace smp::jobfile
