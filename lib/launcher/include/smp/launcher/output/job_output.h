#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/launcher/job/job.h"
#include "smp/launcher/output/line_fold.h"
#include "smp/launcher/output/rank_template.h"
#include "smp/launcher/process/disk_thread.h"
#include "smp/launcher/process/log_file.h"
#include "smp/launcher/process/output.h"

namespace smp::output {

class Console;

// Where the bytes of a job's ranks go: the log of each rank as they are, the log of its host and
// the console as whole lines. The logs are opened and written beside the calling thread, in the
// order of the calls. One thread.
class JobOutput {
 public:
  using Clock = std::chrono::steady_clock;

  // Opens the logs. Throws std::system_error, as far as they are opened at once: a file system that
  // stands still is not waited for. `job` and `console` must outlive this object.
  JobOutput(const job::LaunchJob& job, Console& console);

  // `time`: when the rank's host read them.
  void take(int rank, job::Stream stream, std::string_view bytes,
            std::chrono::system_clock::time_point time);
  // When release() has something to show; lines that may be folded wait for a moment.
  std::optional<Clock::time_point> due() const;
  void release(Clock::time_point now);
  // Lines without end, and all that waits.
  void flush();

  // Throws std::system_error for a log that could not be opened or written, once for each.
  void check_logs();
  // So much waits for the logs' file system that ranks should write less.
  bool is_full() const { return disk_.full(); }
  // Waits until the logs hold all that they were given; false: they did not within the time.
  bool wait_for_logs(std::chrono::milliseconds time) { return disk_.wait(time); }

  std::vector<std::string> last_error_lines(int rank, size_t count) const;

 private:
  struct Splitters {
    process::LineSplitter out, err;
    process::LineSplitter& of(job::Stream stream) {
      return stream == job::Stream::kErr ? err : out;
    }
  };
  struct Log;  // the writing thread's
  struct Rank {
    std::unique_ptr<Splitters> shown;   // none: not on the console
    std::unique_ptr<Splitters> in_log;  // of its host; none: there is no such log
    std::shared_ptr<Log> out_log, err_log;
    process::Tail err_tail;
  };

  std::string prefix_of(int rank, job::Stream stream, std::chrono::system_clock::time_point time,
                        bool coloured) const;
  std::unique_ptr<Splitters> splitters_of(int rank, bool on_console) const;
  void show(int rank, job::Stream stream, std::chrono::system_clock::time_point time);
  void show_folded(const std::vector<LineFold::Folded>& lines);
  std::shared_ptr<Log> opened(const std::string& path);
  void append(const std::shared_ptr<Log>& log, std::string_view bytes);
  void write_host_log(int rank, std::string_view lines);

  const job::LaunchJob& job_;
  Console& console_;
  RankTemplate prefix_;
  bool timed_;  // the prefix changes with time
  bool coloured_;
  std::vector<int> local_ranks_;
  std::optional<LineFold> fold_;
  std::vector<Rank> ranks_;
  std::vector<std::shared_ptr<Log>> host_logs_;
  process::DiskThread disk_;
  std::string lines_;  // reused
};

}  // namespace smp::output
