#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace smp::bench {

// One rank of a library under measurement. Collectives of fp32; `count` is of the full buffer,
// which for all_gather is the output.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual float* buffer(int64_t count) = 0;  // zeros; lives as long as the subject
  virtual void all_gather(const float* in, float* out, int64_t count) = 0;
  virtual void reduce_scatter(float* in, float* out, int64_t count) = 0;
  virtual void all_reduce(float* in, float* out, int64_t count) = 0;
  virtual void barrier() = 0;
};

// Where a Subject's buffers lie: in memory of the library (smp's is symmetric, as in training; gloo
// has none of its own), or in memory that belongs to the caller alone.
enum class Memory { kOwn, kPrivate };

// `meeting` is a name (smp) or a folder (gloo) that no other job uses.
std::unique_ptr<Subject> make_smp_subject(int rank, int size, const std::string& meeting,
                                          Memory memory);
std::unique_ptr<Subject> make_gloo_subject(int rank, int size, const std::string& meeting,
                                           int64_t count);

}  // namespace smp::bench
