#include "smp/launcher/output/console.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>

#include "smp/launcher/process/output.h"
#include "smp/plan/system/signals_blocked.h"
#include "smp/plan/text/printable.h"

namespace smp::output {

using Clock = std::chrono::steady_clock;

// Lines on their way to one file. The writing thread, which the first of them starts, takes all
// that waits, writes it in pieces, and notes when the reader last took one.
class Console::Queue : public std::enable_shared_from_this<Queue> {
 public:
  void push(int file, std::string_view lines) {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    if (bytes_ + lines.size() > kQueueBytes && stalled(Clock::now())) {
      dropped_ += std::count(lines.begin(), lines.end(), '\n');
      if (!loss_) loss_ = 0;
      return;
    }
    if (bytes_ < kQueueBytes / 2) admit_drops(file);
    append(file, lines);
    last_file_ = file;
    if (!started_) start();
    wake_.notify_one();
  }

  bool full() const {
    const std::lock_guard lock(mutex_);
    return bytes_ > kQueueBytes;
  }

  std::optional<int> loss() const {
    const std::lock_guard lock(mutex_);
    return loss_;
  }

  bool stalled() const {
    const std::lock_guard lock(mutex_);
    return stalled(Clock::now());
  }

  bool flush(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return empty_.wait_for(lock, time, [&] { return bytes_ == 0; });
  }

  void close() {
    const std::lock_guard lock(mutex_);
    admit_drops(last_file_);
    closed_ = true;
    wake_.notify_one();
  }

 private:
  struct Piece {
    int file;
    std::string text;
  };
  static constexpr size_t kPieceBytes = 64 << 10;

  void start() {
    system::start_without_signals([self = shared_from_this()] { self->run(); }).detach();
    started_ = true;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Piece piece = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      write_all(piece);
      lock.lock();
      if (bytes_ == 0) empty_.notify_all();
    }
  }

  void append(int file, std::string_view lines) {
    if (bytes_ == 0) last_taken_ = Clock::now();
    if (waiting_.empty() || waiting_.back().file != file ||
        waiting_.back().text.size() > kPieceBytes)
      waiting_.push_back({file, {}});
    waiting_.back().text.append(lines);
    bytes_ += lines.size();
  }

  void admit_drops(int file) {
    if (dropped_ == 0) return;
    append(file,
           fmt::format("smp-launch: {} lines are missing here: the output was not read for {} s\n",
                       dropped_, kPatience.count()));
    dropped_ = 0;
  }

  bool stalled(Clock::time_point now) const {
    return bytes_ > kQueueBytes / 2 && now - last_taken_ > kPatience;
  }

  void write_all(const Piece& piece) {
    std::string_view rest = piece.text;
    while (!rest.empty()) {
      const ssize_t size = ::write(piece.file, rest.data(), std::min(rest.size(), kPieceBytes));
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && errno == EAGAIN) {  // somebody made the terminal non-blocking
        pollfd ready{piece.file, POLLOUT, 0};
        poll(&ready, 1, -1);
        continue;
      }
      const int error = errno;
      const std::lock_guard lock(mutex_);
      if (size < 0) {  // the reader has gone (a closed pipe), or the disk is full
        gone_ = true;
        loss_ = error;
        waiting_.clear();
        bytes_ = 0;
        return;
      }
      last_taken_ = Clock::now();
      bytes_ -= static_cast<size_t>(size);
      rest.remove_prefix(static_cast<size_t>(size));
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable wake_, empty_;
  std::deque<Piece> waiting_;
  size_t bytes_ = 0;  // waiting or being written
  int64_t dropped_ = 0;
  int last_file_ = -1;
  Clock::time_point last_taken_{};
  bool started_ = false;
  bool closed_ = false;
  bool gone_ = false;
  std::optional<int> loss_;  // 0: dropped; else the error of write(2)
};

namespace {

bool same_file(int a, int b) {
  struct stat first, second;
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

Console::Console(int out_fd, int err_fd) {
  out_ = std::make_shared<Queue>();
  err_ = same_file(out_fd, err_fd) ? out_ : std::make_shared<Queue>();
  out_fd_ = out_fd;
  err_fd_ = err_fd;
}

Console::~Console() {
  flush(std::chrono::seconds(2));
  out_->close();
  err_->close();
}

void Console::write(job::Stream stream, std::string_view lines) {
  if (lines.empty()) return;
  if (stream == job::Stream::kOut || err_ == out_) {
    if (open_line_ && !lines.starts_with(process::kEraseLine))
      out_->push(out_fd_, process::kEraseLine);
    open_line_ = lines.back() != '\n';
  }
  if (stream == job::Stream::kOut)
    out_->push(out_fd_, lines);
  else
    err_->push(err_fd_, lines);
}

void Console::say(std::string_view lines, job::Stream stream) {
  write(stream, text::printable(lines));
}

std::optional<Console::Loss> Console::loss() const {
  if (const auto out = out_->loss()) return Loss{job::Stream::kOut, *out};
  if (const auto err = err_->loss()) return Loss{job::Stream::kErr, *err};
  return std::nullopt;
}

bool Console::Loss::reader_has_gone() const { return error == EPIPE; }

std::string Console::Loss::text() const {
  const char* const name = stream == job::Stream::kOut ? "standard output" : "standard error";
  if (error == 0)
    return fmt::format("lines of {} were dropped, because it was not read for {} s", name,
                       kPatience.count());
  if (reader_has_gone()) return fmt::format("the reader of {} has closed it", name);
  return fmt::format("{} cannot be written: {}", name, strerror(error));
}

bool Console::full() const { return out_->full() || err_->full(); }

bool Console::stalled() const {
  return (!out_->full() || out_->stalled()) && (!err_->full() || err_->stalled());
}

bool Console::flush(std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + time;
  const bool out = out_->flush(time);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  // Even behind a blocked standard output, standard error gets a moment for its last words.
  return err_->flush(std::max(left, std::chrono::milliseconds(100))) && out;
}

}  // namespace smp::output
