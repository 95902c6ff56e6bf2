#include "smp/runtime/text_data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "data_draw.h"
#include "smp/plan/check.h"

namespace smp {
namespace {

std::string cannot_read(const std::string& path) {
  return fmt::format("training.data.path: cannot read {}", path);
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) {
      throw std::system_error(errno, std::generic_category(), cannot_read(path));
    }
  }
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

void TextData::read_file(size_t number, int64_t offset, int64_t count, unsigned char* out) const {
  const DataFile& file = files_.files[number];
  const OpenFile open(file.path);
  while (count > 0) {
    const ssize_t got = ::pread(open.fd(), out, static_cast<size_t>(count), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw std::system_error(errno, std::generic_category(), cannot_read(file.path));
    }
    if (got == 0) {
      throw std::runtime_error(
          fmt::format("training.data.path: {} has become shorter than the {} bytes it had at "
                      "the start of the run",
                      file.path, file.bytes));
    }
    out += got;
    offset += got;
    count -= got;
  }
  // Behind the read, so that what was read is what was there before.
  check_unchanged(known_[number], file.path, stamp_of(open.fd(), file.path));
}

TextData::TextData(DataFiles files, int64_t sequence_length, uint64_t seed,
                   int64_t held_out_samples, int64_t sequences_per_sample)
    : files_(std::move(files)),
      sequence_length_(sequence_length),
      sequences_(sequences_per_sample),
      sample_bytes_(sequences_ * sequence_length),
      window_bytes_(sequences_ == 1 ? sequence_length + 1 : sample_bytes_),
      seed_(seed),
      trained_bytes_(files_.total_bytes -
                     (held_out_samples > 0 ? held_out_samples * sample_bytes_ + 1 : 0)),
      held_out_samples_(held_out_samples) {
  int64_t begin = 0;
  std::vector<std::string> paths;
  for (const DataFile& file : files_.files) {
    begins_.push_back(begin);
    begin += file.bytes + 1;
    paths.push_back(file.path);
  }
  known_ = look_at_files(files_.path, paths);
  for (size_t i = 0; i < known_.size(); ++i) {
    if (known_[i].identity.bytes == files_.files[i].bytes) continue;
    throw std::runtime_error(
        fmt::format("training.data.path: {} is being written: it had {} bytes, and has {}",
                    paths[i], files_.files[i].bytes, known_[i].identity.bytes));
  }
  SMP_CHECK(trained_bytes_ >= window_bytes_);
}

std::vector<FileIdentity> TextData::files() const {
  std::vector<FileIdentity> files;
  for (const KnownFile& file : known_) files.push_back(file.identity);
  return files;
}

int64_t TextData::window_start(int64_t step, int64_t sample) const {
  const uint64_t random = data_draw(seed_, step, sample);
  // Any start from which a whole window fits; the remainder's bias is below starts / 2^64.
  const auto starts = static_cast<uint64_t>(trained_bytes_ - window_bytes_ + 1);
  return static_cast<int64_t>(random % starts);
}

void TextData::read_bytes(int64_t begin, int64_t count, unsigned char* out) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), begin);
  for (auto i = static_cast<size_t>(after - begins_.begin() - 1); count > 0; ++i) {
    const DataFile& file = files_.files[i];
    const int64_t offset = begin - begins_[i];  // file.bytes: the 0 byte behind the file
    const int64_t from_file = std::min(count, file.bytes - offset);
    if (from_file > 0) read_file(i, offset, from_file, out);
    out += from_file;
    begin += from_file;
    count -= from_file;
    if (count == 0) return;
    *out++ = 0;
    ++begin;
    --count;
  }
}

void TextData::read_window(int64_t start, int64_t k, int64_t count, int64_t* tokens,
                           int64_t* targets) const {
  std::vector<unsigned char> window(static_cast<size_t>(window_bytes_));
  read_bytes(start, window_bytes_, window.data());
  const auto first_target =
      sequences_ == 1 ? window.begin() + 1 : window.begin() + sequence_length_;
  int64_t* to = targets == nullptr ? nullptr : targets + k * sequence_length_;
  if (to != nullptr) std::copy_n(first_target, sequence_length_, to);
  if (tokens == nullptr) return;
  std::copy_n(window.begin(), sequence_length_, tokens + k * sequence_length_);
  if (sequences_ == 1) return;
  int64_t* decoder = tokens + (count + k) * sequence_length_;
  decoder[0] = 0;
  std::copy_n(first_target, sequence_length_ - 1, decoder + 1);
}

void TextData::read(int64_t step, int64_t first_sample, int64_t count, int64_t* tokens,
                    int64_t* targets) const {
  for (int64_t k = 0; k < count; ++k) {
    read_window(window_start(step, first_sample + k), k, count, tokens, targets);
  }
}

void TextData::read_held_out(int64_t first_sample, int64_t count, int64_t* tokens,
                             int64_t* targets) const {
  for (int64_t k = 0; k < count; ++k) {
    const int64_t sample = std::min(first_sample + k, held_out_samples_ - 1);
    read_window(trained_bytes_ + sample * sample_bytes_, k, count, tokens, targets);
    if (first_sample + k == sample || targets == nullptr) continue;
    std::fill_n(targets + k * sequence_length_, sequence_length_, kNoTarget);
  }
}

}  // namespace smp
