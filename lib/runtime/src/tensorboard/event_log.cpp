#include "event_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <utility>

#include "event.pb.h"
#include "event_file.h"
#include "hparams.pb.h"
#include "scalars.h"
#include "smp/plan/base/xxh64.h"
#include "smp/plan/system/signals_blocked.h"

namespace smp::tensorboard {
namespace {

// Names that TensorBoard searches for (tensorboard/plugins/hparams/metadata.py).
constexpr const char* kFileVersion = "brain.Event:2";
constexpr const char* kHParamsPlugin = "hparams";
constexpr const char* kSessionStartTag = "_hparams_/session_start_info";
constexpr const char* kSessionEndTag = "_hparams_/session_end_info";

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name[0] == '\0' ? "unknown" : name.data();
}

Event event_at(int64_t step, double wall_time) {
  Event event;
  event.set_step(step);
  event.set_wall_time(wall_time);
  return event;
}

// Booleans and numbers keep their type; all other values are strings.
HParamValue hparam_value(const std::string& text) {
  HParamValue value;
  double number = 0;
  const char* const end = text.data() + text.size();
  if (text == "true" || text == "false") {
    value.set_bool_value(text == "true");
  } else if (const auto read = std::from_chars(text.data(), end, number);
             read.ec == std::errc() && read.ptr == end) {
    value.set_number_value(number);
  } else {
    value.set_string_value(text);
  }
  return value;
}

// The plugin reads its data from the metadata of a tensor without elements.
Event hparams_event(const char* tag, int64_t step, const HParamsPluginData& data) {
  Event event = event_at(step, now_s());
  Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name(kHParamsPlugin);
  value.mutable_metadata()->mutable_plugin_data()->set_content(data.SerializeAsString());
  value.mutable_tensor()->set_dtype(DT_FLOAT);
  value.mutable_tensor()->mutable_tensor_shape()->add_dim();
  return event;
}

Event session_start(const Plan& plan, int64_t step) {
  HParamsPluginData data;
  SessionStartInfo& start = *data.mutable_session_start_info();
  std::string all;
  for (const auto& [key, text] : hparams_of(plan)) {
    (*start.mutable_hparams())[key] = hparam_value(text);
    all += fmt::format("{}: {}\n", key, text);
  }
  // TensorBoard's table has one row per group. Starts with equal hyperparameters form a group.
  start.set_group_name(fmt::format("{:016x}", xxh64(all.data(), static_cast<int64_t>(all.size()))));
  start.set_start_time_secs(now_s());
  return hparams_event(kSessionStartTag, step, data);
}

Event scalars_event(const record::StepMetrics& metrics, double wall_time) {
  Event event = event_at(metrics.step, wall_time);
  for (const auto& [tag, number] : scalars_of(metrics)) {
    Summary::Value& value = *event.mutable_summary()->add_value();
    value.set_tag(tag);
    value.set_simple_value(static_cast<float>(number));
  }
  return event;
}

}  // namespace

EventLog::EventLog(const std::string& folder, const Plan& plan, int64_t steps_done)
    : file_(std::make_unique<EventFile>(folder, own_host_name(), static_cast<int64_t>(now_s()))) {
  Event version = event_at(0, now_s());
  version.set_file_version(kFileVersion);
  file_->append(version.SerializeAsString());
  Event start = event_at(steps_done + 1, now_s());
  start.mutable_session_log()->set_status(SessionLog::START);
  file_->append(start.SerializeAsString());
  file_->append(session_start(plan, steps_done).SerializeAsString());
  file_->flush();
  thread_ = system::start_without_signals([this] { write_until_closed(); });
}

EventLog::~EventLog() { close(); }

void EventLog::add(const record::StepMetrics& metrics) {
  const std::lock_guard lock(mutex_);
  rethrow();
  added_.push_back({now_s(), metrics});
}

void EventLog::end(int64_t step) {
  close();
  rethrow();
  HParamsPluginData data;
  data.mutable_session_end_info()->set_status(STATUS_SUCCESS);
  data.mutable_session_end_info()->set_end_time_secs(now_s());
  file_->append(hparams_event(kSessionEndTag, step, data).SerializeAsString());
  file_->flush();
}

void EventLog::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  closing_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EventLog::rethrow() {
  if (failure_) std::rethrow_exception(failure_);
}

void EventLog::write_until_closed() {
  const std::chrono::duration<double> pause(kFlushS);
  for (bool last = false; !last;) {
    std::vector<Taken> taken;
    {
      std::unique_lock lock(mutex_);
      last = closing_.wait_for(lock, pause, [this] { return closed_; });
      taken.swap(added_);
    }
    try {
      write(taken);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      return;
    }
  }
}

void EventLog::write(const std::vector<Taken>& taken) {
  for (const Taken& one : taken)
    file_->append(scalars_event(one.metrics, one.wall_time).SerializeAsString());
  file_->flush();
}

}  // namespace smp::tensorboard
