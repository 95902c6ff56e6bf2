#include "output_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "command_line.h"
#include "smp/launcher/output/rank_template.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/number_text.h"

namespace smp {
namespace {

constexpr int64_t kLeastLogBytes = 64 << 10;
constexpr int64_t kMostLogBytes = int64_t{1} << 50;
constexpr int kMostKept = 1000;

int64_t log_size_of(const std::string& text) {
  const auto bytes = text::strict_whole(text, text::Scale::kBytes);
  if (!bytes || *bytes < kLeastLogBytes || *bytes > kMostLogBytes)
    throw request::UsageError(
        fmt::format("--log-size '{}': expected a size of at least 64KiB, as in 100MiB", text));
  return static_cast<int64_t>(*bytes);
}

int log_keep_of(const std::string& text) {
  int kept = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), kept);
  if (error != std::errc{} || end != text.data() + text.size() || kept < 0 || kept > kMostKept)
    throw request::UsageError(
        fmt::format("--log-keep '{}': expected a whole number from 0 to {}", text, kMostKept));
  return kept;
}

// A rank's log: one file in the run's logs/ for each rank and stream.
void check_log_name(const std::string& text) {
  using Field = output::RankTemplate::Field;
  const output::RankTemplate name("--log-name", text);
  if (!name.has(Field::kRank) || !name.has(Field::kStream))
    throw request::UsageError(
        fmt::format("--log-name '{}': expected a name with {{rank}} and {{stream}}, so that each "
                    "log has its own file",
                    text));
  if (name.has(Field::kTime) || text.find('/') != text.npos)
    throw request::UsageError(fmt::format(
        "--log-name '{}': expected the name of a file in the run's logs/, without '/' and {{time}}",
        text));
}

}  // namespace

OutputOptions::OutputOptions(CLI::App& app, request::OutputRequest& request)
    : app_(app), request_(request) {
  app.add_option("--show-ranks", request.shown_ranks,
                 "ranks whose output is shown: all, none, or a list such as 0,2-3,last or 0-62:8, "
                 "which is every eighth (default: 0)")
      ->type_name("RANKS");
  app.add_option("--prefix", request.prefix,
                 "prefix of each line, as in '{host} {rank:04} {stream} {time} '; it may have "
                 "{local_rank} too (default: '[{rank}] ')")
      ->type_name("TEXT");
  app.add_flag("--fold", request.fold,
               "show a line only once if several ranks write it, with the numbers of these ranks")
      ->disable_flag_override();
  app.add_option("--logs", logs_,
                 "write a log for each rank (rank, the default), for each host (host: algo-1.log, "
                 "algo-2.log, ... with whole lines, each after its prefix), or both")
      ->type_name("rank|host|both");
  app.add_option("--log-name", request.log_name,
                 "names of the ranks' logs (default: rank-{rank}.{stream})")
      ->type_name("TEXT");
  app.add_option("--log-size", log_size_,
                 "rename a log of this size to NAME.1 and start a new one (default: no limit)")
      ->type_name("SIZE");
  app.add_option("--log-keep", log_keep_, "number of renamed logs to keep (default: 3)")
      ->type_name("N");
}

void OutputOptions::finish() {
  try {
    const output::RankTemplate prefix("--prefix", request_.prefix);
    check_log_name(request_.log_name);
  } catch (const ConfigError& error) {
    throw request::UsageError(error.what());
  }
  if (request_.prefix.find('\n') != std::string::npos)
    throw request::UsageError("--prefix: the text has a line end: remove it");
  if (!logs_.empty()) {
    if (logs_ != "rank" && logs_ != "host" && logs_ != "both")
      throw request::UsageError(fmt::format("--logs {}: expected rank, host or both", logs_));
    request_.rank_logs = logs_ != "host";
    request_.host_logs = logs_ != "rank";
  }
  if (!log_size_.empty()) request_.log_limit.bytes = log_size_of(log_size_);
  if (!log_keep_.empty()) {
    if (log_size_.empty()) throw request::UsageError("--log-keep is for --log-size: give both");
    request_.log_limit.kept = log_keep_of(log_keep_);
  }
  if (!request_.rank_logs && app_.count("--log-name") > 0)
    throw request::UsageError(
        "--log-name is for logs of ranks, which --logs host does not write: leave one of the two "
        "out");
}

}  // namespace smp
