#pragma once

#include <cstdint>

#include "smp/plan/data/image_file.h"
#include "smp/plan/files/file_identity.h"

// Training data: images of a file, resized to what the model reads. Sample i of step s is the image
// drawn from (seed, "data", s, i); those held out for evaluation come one after the other.
// Immutable; safe from any thread.
namespace smp::feed {

class ImageData {
 public:
  explicit ImageData(const JobSpec& job);

  int64_t drawn(int64_t step, int64_t sample) const;  // the image of a sample
  int64_t trained() const { return file_.trained; }
  // Of all images and labels, which are in memory: what becomes of the file later is no matter.
  files::FileIdentity identity() const;

  // images [count, channels, height, width] of fp64, fp32, bf16 or fp16 as the model's
  // input, labels [count];
  // what is null is left out. Held-out ones behind the last fill a batch: it again, labelled
  // kNoTarget.
  template <typename T>
  void read(int64_t step, int64_t first_sample, int64_t count, T* images, int64_t* labels) const;
  template <typename T>
  void read_held_out(int64_t first_sample, int64_t count, T* images, int64_t* labels) const;

 private:
  template <typename T>
  void put(int64_t image, int64_t k, T* images, int64_t* labels) const;
  template <typename T>
  void resize(const float* from, T* to) const;  // one channel

  data::ImageFile file_;
  ImageFileSpec stored_;
  int64_t channels_, height_, width_;
  uint64_t seed_;
};

}  // namespace smp::feed
