#include "smp/launcher/output/job_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "smp/launcher/output/console.h"

namespace smp::output {
namespace {

using SystemTime = std::chrono::system_clock::time_point;

// Six colours that can be read on black and on white.
constexpr int kFirstColour = 31;
constexpr int kColours = 6;

constexpr std::chrono::milliseconds kForOpening{200};  // of all logs, where that takes no longer

}  // namespace

// A log that failed once is given up: one message is enough.
struct JobOutput::Log {
  Log(std::string where, process::LogLimit most) : path(std::move(where)), limit(most) {}

  void open() {
    try {
      file.emplace(path, limit);
    } catch (const std::system_error&) {
      failed = true;
      throw;
    }
  }
  void write(std::string_view bytes) {
    if (failed) return;
    try {
      file->write(bytes);
    } catch (const std::system_error&) {
      failed = true;
      throw;
    }
  }

  std::string path;
  process::LogLimit limit;
  std::optional<process::LogFile> file;
  bool failed = false;
};

JobOutput::JobOutput(const job::LaunchJob& job, Console& console)
    : job_(job),
      console_(console),
      prefix_("--prefix", job.output.prefix),
      timed_(prefix_.has(RankTemplate::Field::kTime)),
      coloured_(job.output.coloured && job.output.shown_ranks.size() > 1),
      local_ranks_(job::local_ranks_of(job)) {
  const int count = static_cast<int>(job.commands.size());
  if (job.output.fold && job.output.shown_ranks.size() > 1)
    fold_.emplace(job.output.shown_ranks.size());
  for (const std::string& path : job.output.host_logs) host_logs_.push_back(opened(path));
  for (int rank = 0; rank < count; ++rank) {
    Rank& one = ranks_.emplace_back();
    if (job.output.shown_ranks.count(rank) != 0) one.shown = splitters_of(rank, true);
    if (!host_logs_.empty()) one.in_log = splitters_of(rank, false);
    if (job.files[rank].out_log.empty()) continue;
    one.out_log = opened(job.files[rank].out_log);
    one.err_log = opened(job.files[rank].err_log);
  }
  disk_.wait(kForOpening);
  check_logs();
}

std::shared_ptr<JobOutput::Log> JobOutput::opened(const std::string& path) {
  auto log = std::make_shared<Log>(path, job_.output.log_limit);
  disk_.add(0, [log] { log->open(); });
  return log;
}

void JobOutput::append(const std::shared_ptr<Log>& log, std::string_view bytes) {
  if (log == nullptr || bytes.empty()) return;
  disk_.add(bytes.size(), [log, text = std::string(bytes)] { log->write(text); });
}

void JobOutput::check_logs() {
  if (const std::exception_ptr error = disk_.take_error()) std::rethrow_exception(error);
}

std::string JobOutput::prefix_of(int rank, job::Stream stream, SystemTime time,
                                 bool coloured) const {
  const std::string text =
      prefix_.fill({{rank},
                    {local_ranks_[rank]},
                    job_.hosts.empty() ? job_.output.host_name
                                       : job_.hosts[static_cast<size_t>(job_.host_of_rank[rank])],
                    stream,
                    time});
  if (!coloured) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", kFirstColour + rank % kColours, text);
}

std::unique_ptr<JobOutput::Splitters> JobOutput::splitters_of(int rank, bool on_console) const {
  // A folded line gets its prefix when it is known whose it is.
  const bool plain = on_console && fold_;
  const auto prefix = [&](job::Stream stream) {
    return plain ? std::string() : prefix_of(rank, stream, {}, on_console && coloured_);
  };
  const bool live = on_console && job_.output.live;
  return std::make_unique<Splitters>(
      Splitters{process::LineSplitter(prefix(job::Stream::kOut), live),
                process::LineSplitter(prefix(job::Stream::kErr), live)});
}

void JobOutput::take(int rank, job::Stream stream, std::string_view bytes, SystemTime time) {
  Rank& one = ranks_[rank];
  if (stream == job::Stream::kErr) one.err_tail.feed(bytes);
  const auto now = Clock::now();
  if (one.shown != nullptr) {
    process::LineSplitter& splitter = one.shown->of(stream);
    if (timed_ && !fold_) splitter.set_prefix(prefix_of(rank, stream, time, coloured_));
    lines_.clear();
    splitter.feed(bytes, now, lines_);
    show(rank, stream, time);
  }
  append(stream == job::Stream::kErr ? one.err_log : one.out_log, bytes);
  if (one.in_log == nullptr) return;
  process::LineSplitter& splitter = one.in_log->of(stream);
  if (timed_) splitter.set_prefix(prefix_of(rank, stream, time, false));
  lines_.clear();
  splitter.feed(bytes, now, lines_);
  write_host_log(rank, lines_);
}

// Those in lines_.
void JobOutput::show(int rank, job::Stream stream, SystemTime time) {
  if (!fold_) return console_.write(stream, lines_);
  const auto now = Clock::now();
  fold_->feed(rank, stream, lines_, time, now);
  show_folded(fold_->take(now));
}

void JobOutput::show_folded(const std::vector<LineFold::Folded>& lines) {
  for (const LineFold::Folded& folded : lines) {
    RankWords words{folded.ranks, {}, {}, folded.stream, folded.time};
    std::vector<std::string> hosts;
    for (int rank : folded.ranks) {
      words.local_ranks.push_back(local_ranks_[rank]);
      hosts.push_back(job_.hosts.empty()
                          ? job_.output.host_name
                          : job_.hosts[static_cast<size_t>(job_.host_of_rank[rank])]);
    }
    std::sort(words.local_ranks.begin(), words.local_ranks.end());
    words.local_ranks.erase(std::unique(words.local_ranks.begin(), words.local_ranks.end()),
                            words.local_ranks.end());
    std::sort(hosts.begin(), hosts.end());
    hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
    words.host = hosts.size() == 1 ? hosts.front() : fmt::format("{} hosts", hosts.size());
    const bool one = coloured_ && folded.ranks.size() == 1;
    const std::string prefix =
        one ? prefix_of(folded.ranks.front(), folded.stream, folded.time, true)
            : prefix_.fill(words);
    console_.write(folded.stream, prefix + folded.line);
  }
}

void JobOutput::write_host_log(int rank, std::string_view lines) {
  const size_t host = job_.hosts.empty() ? 0 : static_cast<size_t>(job_.host_of_rank[rank]);
  append(host_logs_[host], lines);
}

std::optional<JobOutput::Clock::time_point> JobOutput::due() const {
  return fold_ ? fold_->due() : std::nullopt;
}

void JobOutput::release(Clock::time_point now) {
  if (fold_) show_folded(fold_->take(now));
}

void JobOutput::flush() {
  const auto now = std::chrono::system_clock::now();
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    for (const job::Stream stream : {job::Stream::kOut, job::Stream::kErr}) {
      if (ranks_[rank].shown != nullptr) {
        lines_.clear();
        ranks_[rank].shown->of(stream).flush(lines_);
        show(rank, stream, now);
      }
      if (ranks_[rank].in_log != nullptr) {
        lines_.clear();
        ranks_[rank].in_log->of(stream).flush(lines_);
        write_host_log(rank, lines_);
      }
    }
  }
  if (fold_) show_folded(fold_->take(Clock::now(), true));
}

std::vector<std::string> JobOutput::last_error_lines(int rank, size_t count) const {
  return ranks_[rank].err_tail.last_lines(count);
}

}  // namespace smp::output
