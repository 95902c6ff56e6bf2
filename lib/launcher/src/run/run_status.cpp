#include "smp/launcher/run/run_status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "smp/launcher/hosts/duration.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::run {
namespace {

using std::chrono::milliseconds;
using SystemTime = std::chrono::system_clock::time_point;

int64_t ms_of(SystemTime time) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
}

// Longest time, from 1970 on or from now, that a status may name.
constexpr int64_t kMostMs = int64_t{1} << 42;  // year 2109
constexpr int64_t kMostSteps = int64_t{1} << 60;

int64_t count_of(const text::OrderedJson& json, const char* key, int64_t most) {
  const text::OrderedJson& value = json.at(key);
  if (!value.is_number_integer() || value.get<double>() < 0 ||
      value.get<double>() > static_cast<double>(most))
    throw ConfigError(fmt::format("'{}' is not a whole number from 0 to {}", key, most));
  return value.get<int64_t>();
}

int small_count_of(const text::OrderedJson& json, const char* key) {
  return static_cast<int>(count_of(json, key, std::numeric_limits<int>::max()));
}

SystemTime time_of(const text::OrderedJson& json, const char* key) {
  return SystemTime(milliseconds(count_of(json, key, kMostMs)));
}

milliseconds between(SystemTime earlier, SystemTime later) {
  return std::max(std::chrono::duration_cast<milliseconds>(later - earlier), milliseconds(0));
}

milliseconds time_left(const runinfo::RankProgress& progress) {
  const auto steps = static_cast<double>(progress.steps - progress.steps_done);
  const double ms = 1000 * steps * progress.step_s;
  return milliseconds(std::llround(std::clamp(ms, 0.0, static_cast<double>(kMostMs))));
}

// "step 20/200", "loss 2.7312": what is known of the training.
std::vector<std::string> training_words(const runinfo::RankProgress& progress) {
  if (progress.steps_done == 0) return {progress.phase};
  std::vector<std::string> words = {fmt::format("step {}/{}", progress.steps_done, progress.steps),
                                    fmt::format("loss {:.4f}", progress.loss),
                                    fmt::format("{:.0f} tokens/s", progress.tokens_per_s)};
  if (progress.steps_done < progress.steps)
    words.push_back(hosts::duration_text(time_left(progress)) + " left");
  return words;
}

std::string restarts_text(int count) {
  return fmt::format("{} restart{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string status_json(const RunStatus& status) {
  const job::JobView& view = status.view;
  text::OrderedJson json = {{"job_id", status.job_id},
                            {"state", status.state},
                            {"host", status.host},
                            {"process", status.process},
                            {"began_ms", ms_of(status.began)},
                            {"updated_ms", ms_of(status.updated)},
                            {"start", status.start},
                            {"max_restarts", status.max_restarts},
                            {"ranks", view.ranks},
                            {"running", view.running},
                            {"slowest_step", view.slowest_step},
                            {"silent_ms", view.silent.count()},
                            {"last_event", status.last_event},
                            {"exit_code", status.exit_code}};
  if (view.progress)
    json["progress"] = {{"step", view.progress->step},
                        {"phase", view.progress->phase},
                        {"steps_done", view.progress->steps_done},
                        {"steps", view.progress->steps},
                        {"loss", view.progress->loss},
                        {"tokens_per_s", view.progress->tokens_per_s},
                        {"step_s", view.progress->step_s}};
  return json.dump(2, ' ', false, text::OrderedJson::error_handler_t::replace) + "\n";
}

RunStatus parse_status(const std::string& path, std::string_view text) {
  try {
    const text::OrderedJson json = text::OrderedJson::parse(text);
    RunStatus status;
    json.at("job_id").get_to(status.job_id);
    json.at("state").get_to(status.state);
    json.at("host").get_to(status.host);
    status.process = small_count_of(json, "process");
    status.began = time_of(json, "began_ms");
    status.updated = time_of(json, "updated_ms");
    status.start = small_count_of(json, "start");
    status.max_restarts = small_count_of(json, "max_restarts");
    status.view.ranks = small_count_of(json, "ranks");
    status.view.running = small_count_of(json, "running");
    status.view.slowest_step = count_of(json, "slowest_step", kMostSteps);
    status.view.silent = milliseconds(count_of(json, "silent_ms", kMostMs));
    json.at("last_event").get_to(status.last_event);
    status.exit_code = small_count_of(json, "exit_code");
    if (const auto found = json.find("progress"); found != json.end()) {
      runinfo::RankProgress progress;
      progress.step = count_of(*found, "step", kMostSteps);
      found->at("phase").get_to(progress.phase);
      progress.steps_done = count_of(*found, "steps_done", kMostSteps);
      progress.steps = count_of(*found, "steps", kMostSteps);
      // A loss that is not finite has no number in JSON.
      progress.loss = found->at("loss").is_number() ? found->at("loss").get<double>() : NAN;
      found->at("tokens_per_s").get_to(progress.tokens_per_s);
      found->at("step_s").get_to(progress.step_s);
      status.view.progress = progress;
    }
    return status;
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format("'{}' is not the status of a run: {}", path, error.what()));
  }
}

std::string status_line(const RunStatus& status, int columns) {
  std::string line = fmt::format("{}/{} ranks", status.view.running, status.view.ranks);
  if (status.view.progress) {
    for (const std::string& word : training_words(*status.view.progress)) line += "  " + word;
  }
  if (status.restarts() > 0) line += "  " + restarts_text(status.restarts());
  return line.substr(0, static_cast<size_t>(std::max(columns - 1, 0)));
}

std::string status_text(const RunStatus& status, Watcher watcher, SystemTime now) {
  const bool ended = status.state == "ended";
  std::string text = fmt::format("job {}: ", status.job_id);
  if (ended)
    text += fmt::format("ended {} ago, exit code {}\n",
                        hosts::duration_text(between(status.updated, now)), status.exit_code);
  else if (watcher == Watcher::kSilent)
    text += fmt::format(
        "{} at its last status, {} ago: its smp-launch (process {} on {}) is stopped, has ended, "
        "or cannot write here\n",
        status.state, hosts::duration_text(between(status.updated, now)), status.process,
        status.host);
  else if (watcher == Watcher::kGone)
    text += fmt::format(
        "its smp-launch (process {} on {}) has ended without a report; last status {} ago\n",
        status.process, status.host, hosts::duration_text(between(status.updated, now)));
  else
    text +=
        fmt::format("{} for {} (process {} on {})\n", status.state,
                    hosts::duration_text(between(status.began, now)), status.process, status.host);
  text += fmt::format("  ranks     {} of {} {}\n", status.view.running, status.view.ranks,
                      watcher == Watcher::kGone && !ended ? "were running" : "running");
  if (status.view.progress)
    text += fmt::format("  training  {}\n", fmt::join(training_words(*status.view.progress), ", "));
  if (status.view.silent > std::chrono::seconds(10))
    text += fmt::format("  no rank has made progress for {}\n",
                        hosts::duration_text(status.view.silent));
  text += fmt::format("  restarts  {} of {}\n", status.restarts(), status.max_restarts);
  if (!status.last_event.empty()) text += fmt::format("  last      {}\n", status.last_event);
  return text;
}

std::string prometheus_text(const RunStatus& status) {
  std::string text;
  const auto gauge = [&](const char* name, const char* help, double value) {
    text += fmt::format("# HELP smp_{0} {1}\n# TYPE smp_{0} gauge\nsmp_{0}{{job=\"{2}\"}} {3}\n",
                        name, help, status.job_id, value);
  };
  gauge("ranks", "Ranks of the job.", status.view.ranks);
  gauge("ranks_running", "Ranks that are running.", status.view.running);
  gauge("restarts", "Restarts until now.", status.restarts());
  gauge("began_seconds", "Start of smp-launch, in seconds since 1970.",
        static_cast<double>(ms_of(status.began)) / 1000);
  gauge("updated_seconds", "Time of this file, in seconds since 1970.",
        static_cast<double>(ms_of(status.updated)) / 1000);
  gauge("progress_age_seconds", "Time since the last progress of a rank.",
        static_cast<double>(status.view.silent.count()) / 1000);
  if (!status.view.progress) return text;
  const runinfo::RankProgress& progress = *status.view.progress;
  gauge("steps_done", "Training steps done.", static_cast<double>(progress.steps_done));
  gauge("steps", "Training steps of the run.", static_cast<double>(progress.steps));
  gauge("loss", "Loss of the last step.", progress.loss);
  gauge("tokens_per_second", "Tokens per second of the last step.", progress.tokens_per_s);
  gauge("step_seconds", "Time of the last step.", progress.step_s);
  return text;
}

std::string event_json(const job::JobEvent& event, int start, SystemTime now) {
  const int64_t ms = ms_of(now);
  text::OrderedJson json = {
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                           fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000)},
      {"event", event.name},
      {"start", start}};
  if (event.rank) json["rank"] = *event.rank;
  if (!event.text.empty()) json["text"] = event.text;
  return json.dump(-1, ' ', false, text::OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace smp::run
