#pragma once

#include <cstdint>

#include "smp/plan/data/image_file.h"
#include "smp/plan/files/file_identity.h"

// Training data: images of a file, resized to the model's input. Sample i of step s is the image
// drawn from (seed, "data", s, i). Images held out for evaluation are read in order. Immutable;
// safe from any thread.
namespace smp::feed {

class ImageData {
 public:
  explicit ImageData(const JobSpec& job);

  int64_t drawn(int64_t step, int64_t sample) const;  // index of the sample's image
  int64_t trained() const { return file_.trained; }
  // The identity of all images and labels as read into memory; later changes of the file do not
  // matter.
  files::FileIdentity identity() const;

  // images [count, channels, height, width] of fp64, fp32, bf16 or fp16 as the model's input,
  // labels [count]; a null buffer is not filled. Past the last held-out image, read_held_out()
  // repeats that image with the label kNoTarget.
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
