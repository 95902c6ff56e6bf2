#include "smp/plan/data/image_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/files/git_lfs.h"
#include "smp/plan/files/unreadable.h"

namespace smp::data {
namespace {

// The file's images are in memory; more should come in another form.
constexpr uintmax_t kMostImageBytes = uintmax_t{4} << 30;

[[noreturn]] void fail(const std::string& path, int64_t line, const std::string& what) {
  throw ConfigError(fmt::format("training.data.path: {} line {}: {}", path, line, what));
}

std::string shown(std::string_view text) {
  constexpr size_t kMost = 40;
  return fmt::format("'{}{}'", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

std::ifstream open(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw ConfigError(fmt::format("training.data.path: {} does not exist", path));
  }
  if (error)
    files::throw_unreadable(fmt::format("training.data.path: cannot read {}", path), error.value());
  if (!std::filesystem::is_regular_file(status)) {
    throw ConfigError(fmt::format(
        "training.data.path: {} is not a file: images are read from one file with one image a line",
        path));
  }
  if (std::filesystem::file_size(path, error) > kMostImageBytes) {
    throw ConfigError(
        fmt::format("training.data.path: {} is larger than 4 GiB, the limit of images held in "
                    "memory: give fewer or smaller images",
                    path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file)
    files::throw_unreadable(fmt::format("training.data.path: cannot read {}", path), errno);
  if (const std::string lfs = files::git_lfs_complaint_of(path); !lfs.empty()) {
    throw ConfigError(fmt::format("training.data.path: {}: {}", path, lfs));
  }
  return file;
}

// One line's numbers, taken from its front.
class Numbers {
 public:
  Numbers(const std::string& path, int64_t line, std::string_view text)
      : path_(path), line_(line), rest_(text) {}

  bool done() const { return done_; }
  double next() {
    const size_t comma = rest_.find(',');
    const std::string_view word = rest_.substr(0, comma);
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value)) {
      fail(path_, line_, fmt::format("{} is not a number", shown(word)));
    }
    done_ = comma == std::string_view::npos;
    rest_.remove_prefix(done_ ? rest_.size() : comma + 1);
    return value;
  }

 private:
  const std::string& path_;
  int64_t line_;
  std::string_view rest_;
  bool done_ = false;
};

}  // namespace

ImageFile read_image_file(const JobSpec& job) {
  const TrainingSpec& training = job.training;
  const ImageFileSpec& spec = training.images;
  if (training.data_path.empty()) {
    throw ConfigError("training.data.path: no training data given: name a file of images");
  }
  ImageFile found;
  found.path = training.data_path;
  std::ifstream file = open(found.path);
  const int64_t numbers = spec.channels * spec.height * spec.width;
  std::string text;
  for (int64_t line = 1; std::getline(file, text); ++line) {
    found.bytes += static_cast<int64_t>(text.size()) + 1;
    if (text.ends_with('\r')) text.pop_back();
    std::vector<double> values;
    for (Numbers words(found.path, line, text); !words.done();) {
      values.push_back(words.next());
      if (static_cast<int64_t>(values.size()) > numbers + 1) break;
    }
    if (static_cast<int64_t>(values.size()) != numbers + 1) {
      const bool more = static_cast<int64_t>(values.size()) > numbers + 1;
      fail(found.path, line,
           fmt::format("{}{} numbers, expected {} x {} x {} = {} and a label",
                       more ? "more than " : "", more ? numbers + 1 : values.size(), spec.channels,
                       spec.height, spec.width, numbers));
    }
    const double label = values.back();
    values.pop_back();
    if (label != std::floor(label) || label < 0 ||
        label >= static_cast<double>(job.model.vocab_size)) {
      fail(found.path, line,
           fmt::format("the label {} is not within 0 to {}, the classes of the last layer", label,
                       job.model.vocab_size - 1));
    }
    found.labels.push_back(static_cast<int32_t>(label));
    for (const double value : values) {
      if (value < 0 || value > spec.largest) {
        fail(found.path, line,
             fmt::format("{} is not within 0 to {} (training.data.images.largest)", value,
                         spec.largest));
      }
      found.pixels.push_back(static_cast<float>(2 * value / spec.largest - 1));
    }
  }
  if (file.bad())
    files::throw_unreadable(fmt::format("training.data.path: cannot read {}", found.path), EIO);
  if (found.images() == 0) {
    throw ConfigError(fmt::format("training.data.path: {} holds no images", found.path));
  }
  found.trained = found.images() - held_out_samples(training);
  if (found.trained < 1) {
    throw ConfigError(
        fmt::format("training.evaluation.samples: {} holds {} images, too few for {} held-out "
                    "images and one to train on",
                    found.path, found.images(), held_out_samples(training)));
  }
  const int64_t batch = training.global_batch.value_or(1);
  if (found.trained < batch) {
    throw ConfigError(
        fmt::format("training.data.path: {} holds {} images to train on, fewer than one batch of "
                    "{}: give more images, or a smaller training.global_batch",
                    found.path, found.trained, batch));
  }
  return found;
}

}  // namespace smp::data
