#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "smp/plan/runinfo/trace_file.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/text/json.h"

// What is wrong with a text as a file of Chrome's trace event format ("Trace Event Format", Google,
// 2016), as viewers read it. Written from the format, not from TraceWriter.
namespace smp::test {

class TraceCheck {
 public:
  explicit TraceCheck(const std::string& text) {
    const auto json = text::OrderedJson::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array()) {
      wrong("it is no object with a list traceEvents");
      return;
    }
    about_ = json.value("otherData", text::OrderedJson::object());
    if (json.value("displayTimeUnit", "") != "ms") wrong("displayTimeUnit is not ms");
    for (const text::OrderedJson& event : json["traceEvents"]) look_at(event);
    check_nesting();
    check_flows();
    for (const auto& [thread, slices] : slices_) {
      if (!thread_names_.contains(thread))
        wrong(fmt::format("thread {} of {} has no name", thread.second, thread.first));
      if (!process_names_.contains(thread.first))
        wrong(fmt::format("process {} has no name", thread.first));
    }
  }

  const std::vector<std::string>& problems() const { return problems_; }
  const std::map<int64_t, std::string>& processes() const { return process_names_; }
  const text::OrderedJson& about() const { return about_; }
  int64_t flows() const { return static_cast<int64_t>(flows_.size()); }
  int64_t counters() const { return counters_; }
  int64_t open() const { return open_; }
  // Names of the slices on threads of this name.
  std::set<std::string> names_on(const std::string& thread_name) const {
    std::set<std::string> names;
    for (const auto& [thread, name] : thread_names_) {
      const auto found = slices_.find(thread);
      if (name != thread_name || found == slices_.end()) continue;
      for (const Slice& slice : found->second) names.insert(slice.name);
    }
    return names;
  }

 private:
  using Thread = std::pair<int64_t, int64_t>;  // process and thread
  struct Slice {
    int64_t begin = 0, end = 0;  // ns
    std::string name;
  };
  struct Flow {
    int begins = 0, ends = 0;
    std::string name, category;
  };

  void wrong(const std::string& what) {
    if (problems_.size() < 10) problems_.push_back(what);
  }

  int64_t ns_of(const text::OrderedJson& event, const char* key) {
    if (!event.contains(key) || !event[key].is_number()) {
      wrong(fmt::format("no number {} in {}", key, event.dump()));
      return 0;
    }
    return std::llround(event[key].get<double>() * 1000);
  }
  int64_t whole(const text::OrderedJson& event, const char* key) {
    if (event.contains(key) && event[key].is_number_integer()) return event[key];
    wrong(fmt::format("no whole number {} in {}", key, event.dump()));
    return -1;
  }

  void look_at(const text::OrderedJson& event) {
    const std::string phase = event.value("ph", "");
    const std::string name = event.value("name", "");
    if (name.empty()) wrong("no name in " + event.dump());
    const int64_t pid = whole(event, "pid");
    if (phase == "M") {
      const std::string text = event["args"].value("name", "");
      if (name == "process_name") process_names_[pid] = text;
      if (name == "thread_name") thread_names_[{pid, whole(event, "tid")}] = text;
    } else if (phase == "X") {
      const int64_t begin = ns_of(event, "ts"), size = ns_of(event, "dur");
      if (begin < 0) wrong("before the file's begin: " + event.dump());
      if (size < 0) wrong("a negative time: " + event.dump());
      if (!event.contains("cat")) wrong("no category: " + event.dump());
      if (event["args"].value("open", false)) ++open_;
      slices_[{pid, whole(event, "tid")}].push_back({begin, begin + size, name});
    } else if (phase == "s" || phase == "f") {
      Flow& flow = flows_[whole(event, "id")];
      ++(phase == "s" ? flow.begins : flow.ends);
      if (phase == "f" && event.value("bp", "") != "e") wrong("bp is not e: " + event.dump());
      const std::string category = event.value("cat", "");
      if (flow.begins + flow.ends == 1) flow = {flow.begins, flow.ends, name, category};
      if (flow.name != name || flow.category != category) wrong("other names: " + event.dump());
      points_.emplace_back(Thread{pid, whole(event, "tid")}, ns_of(event, "ts"));
    } else if (phase == "C") {
      ++counters_;
      if (event["args"].empty() || !event["args"].begin()->is_number())
        wrong("no number to draw: " + event.dump());
      ns_of(event, "ts");
    } else {
      wrong("an unknown phase: " + event.dump());
    }
  }

  // A slice lies within another of its thread, or beside it.
  void check_nesting() {
    for (auto& [thread, slices] : slices_) {
      std::vector<Slice> sorted = slices;
      std::stable_sort(sorted.begin(), sorted.end(), [](const Slice& a, const Slice& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      });
      std::vector<Slice> around;
      for (const Slice& slice : sorted) {
        while (!around.empty() && around.back().end <= slice.begin) around.pop_back();
        if (!around.empty() && slice.end > around.back().end)
          wrong(fmt::format("on thread {} of {} '{}' at {} ends after '{}' around it",
                            thread.second, thread.first, slice.name, slice.begin,
                            around.back().name));
        around.push_back(slice);
      }
    }
  }

  void check_flows() {
    for (const auto& [id, flow] : flows_) {
      if (flow.begins != 1 || flow.ends != 1)
        wrong(fmt::format("arrow {} has {} begins and {} ends", id, flow.begins, flow.ends));
    }
    for (const auto& [thread, at] : points_) {
      const auto holds = [at = at](const Slice& slice) {
        return slice.begin <= at && at <= slice.end;
      };
      const std::vector<Slice>& slices = slices_[thread];
      if (std::none_of(slices.begin(), slices.end(), holds))
        wrong(fmt::format("an arrow at {} ns is in no slice", at));
    }
  }

  std::vector<std::string> problems_;
  text::OrderedJson about_;
  std::map<int64_t, std::string> process_names_;
  std::map<Thread, std::string> thread_names_;
  std::map<Thread, std::vector<Slice>> slices_;
  std::map<int64_t, Flow> flows_;
  std::vector<std::pair<Thread, int64_t>> points_;
  int64_t counters_ = 0, open_ = 0;
};

// An action as it can be read from a trace: "forward microbatch 2 chunk 1 layer 9".
inline std::string traced_action(const std::string& name, int64_t microbatch, int64_t chunk,
                                 int64_t layer, int64_t bucket) {
  return fmt::format("{} microbatch {} chunk {} layer {} bucket {}", name, microbatch, chunk, layer,
                     bucket);
}

// The actions of one process and step, in the order of the file.
inline std::vector<std::string> traced_actions(const std::vector<runinfo::ReadSlice>& slices,
                                               int64_t pid, int64_t step) {
  std::vector<std::string> actions;
  for (const runinfo::ReadSlice& slice : slices) {
    const bool is_action = slice.thread == runinfo::kComputeThread && slice.category != "wait" &&
                           slice.category != "step";
    if (slice.pid == pid && slice.step == step && is_action)
      actions.push_back(
          traced_action(slice.name, slice.microbatch, slice.chunk, slice.layer, slice.bucket));
  }
  return actions;
}

// The same of a schedule.
inline std::vector<std::string> scheduled_actions(const std::vector<schedule::Action>& actions) {
  std::vector<std::string> texts;
  for (const schedule::Action& action : actions)
    texts.push_back(traced_action(std::string(name_of(action.kind)), action.microbatch,
                                  action.chunk, action.layer, action.bucket));
  return texts;
}

}  // namespace smp::test
