#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

// What becomes of the bytes that a rank writes. One thread.
namespace smp::process {

// Brings a terminal back to the start of an unfinished line, and clears it.
inline constexpr std::string_view kEraseLine = "\r\x1b[K";

// Cuts a stream into whole lines for the console, each behind a prefix.
//   - A line that has not ended is held back until it does, or until flush().
//   - A line that overwrites itself with '\r' (a progress bar) shows its last state, and while it
//     goes on, its present state once a second, as lines of their own. On a terminal (`live`) it
//     overwrites itself there as well, ten times a second.
//   - A line longer than kLongestLine is cut there, between two UTF-8 characters.
class LineSplitter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kLongestLine = 64 << 10;

  explicit LineSplitter(std::string prefix, bool live = false)
      : prefix_(std::move(prefix)), live_(live) {}
  // For the lines that end from now on.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  void feed(std::string_view bytes, Clock::time_point now, std::string& lines);
  void flush(std::string& lines);

 private:
  bool feed_plain_line(std::string_view& bytes, std::string& lines) const;
  void append(std::string_view text, std::string& lines);
  void overwrite(Clock::time_point now, std::string& lines);
  void end_line(std::string& lines);

  std::string prefix_;
  bool live_;
  bool open_ = false;  // the terminal shows an unfinished line of ours
  std::string line_;   // since the last line end
  bool after_return_ = false;
  Clock::time_point last_shown_{};
};

// The last bytes of a stream, enough for the lines that a failure report quotes.
class Tail {
 public:
  void feed(std::string_view bytes);
  std::vector<std::string> last_lines(size_t count) const;

 private:
  std::string bytes_;
};

}  // namespace smp::process
