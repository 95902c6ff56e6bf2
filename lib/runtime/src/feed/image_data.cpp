#include "smp/runtime/feed/image_data.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>

#include "feed/sample_draw.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/xxh64.h"
#include "smp/plan/data/data_files.h"

namespace smp::feed {
namespace {

// The position of output pixel i of `out` among `in` pixels: between `low` and `high`. Pixels are
// squares, and their centres are compared, as in torch's interpolate(mode="bilinear",
// align_corners=False).
struct Between {
  int64_t low, high;
  double share;  // of `high`
};
Between between(int64_t i, int64_t in, int64_t out) {
  const double at =
      (static_cast<double>(i) + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5;
  const double inside = std::clamp(at, 0.0, static_cast<double>(in - 1));
  const auto low = static_cast<int64_t>(inside);
  return {low, std::min(low + 1, in - 1), inside - static_cast<double>(low)};
}

}  // namespace

ImageData::ImageData(const JobSpec& job)
    : file_(data::read_image_file(job)),
      stored_(job.training.images),
      channels_(job.model.input_channels),
      height_(job.model.input_height),
      width_(job.model.input_width),
      seed_(job.training.seed) {}

files::FileIdentity ImageData::identity() const {
  const std::vector<uint64_t> hashes = {
      xxh64(file_.labels.data(), static_cast<int64_t>(file_.labels.size() * sizeof(int32_t))),
      xxh64(file_.pixels.data(), static_cast<int64_t>(file_.pixels.size() * sizeof(float)))};
  return {file_.path, file_.bytes, xxh64(hashes.data(), 2 * sizeof(uint64_t))};
}

int64_t ImageData::drawn(int64_t step, int64_t sample) const {
  return static_cast<int64_t>(draw_sample(seed_, step, sample) %
                              static_cast<uint64_t>(file_.trained));
}

template <typename T>
void ImageData::resize(const float* from, T* to) const {
  for (int64_t y = 0; y < height_; ++y) {
    const Between row = between(y, stored_.height, height_);
    const float* above = from + row.low * stored_.width;
    const float* below = from + row.high * stored_.width;
    for (int64_t x = 0; x < width_; ++x) {
      const Between col = between(x, stored_.width, width_);
      const double upper = above[col.low] + col.share * (above[col.high] - above[col.low]);
      const double lower = below[col.low] + col.share * (below[col.high] - below[col.low]);
      const double value = upper + row.share * (lower - upper);
      *to++ = static_cast<T>(value);
    }
  }
}

template <typename T>
void ImageData::put(int64_t image, int64_t k, T* images, int64_t* labels) const {
  if (labels != nullptr) labels[k] = file_.labels[static_cast<size_t>(image)];
  if (images == nullptr) return;
  const int64_t plane = stored_.height * stored_.width;
  const float* from = file_.pixels.data() + image * stored_.channels * plane;
  T* to = images + k * channels_ * height_ * width_;
  for (int64_t c = 0; c < channels_; ++c, to += height_ * width_) {
    resize(from + (stored_.channels == 1 ? 0 : c) * plane, to);
  }
}

template <typename T>
void ImageData::read(int64_t step, int64_t first_sample, int64_t count, T* images,
                     int64_t* labels) const {
  for (int64_t k = 0; k < count; ++k) put(drawn(step, first_sample + k), k, images, labels);
}

template <typename T>
void ImageData::read_held_out(int64_t first_sample, int64_t count, T* images,
                              int64_t* labels) const {
  for (int64_t k = 0; k < count; ++k) {
    const int64_t image = file_.trained + first_sample + k;
    put(std::min(image, file_.images() - 1), k, images, labels);
    if (image >= file_.images() && labels != nullptr) labels[k] = data::kNoTarget;
  }
}

#define SMP_READS_OF(T)                                                         \
  template void ImageData::read(int64_t, int64_t, int64_t, T*, int64_t*) const; \
  template void ImageData::read_held_out(int64_t, int64_t, T*, int64_t*) const;

SMP_READS_OF(float)
SMP_READS_OF(double)
SMP_READS_OF(c10::BFloat16)
SMP_READS_OF(c10::Half)
#undef SMP_READS_OF

}  // namespace smp::feed
