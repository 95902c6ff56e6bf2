#include "smp/plan/runinfo/step_timeline.h"

#include <fmt/format.h>

#include <cstring>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::runinfo {
namespace {

constexpr int kRecordedStep = 3;  // of those that the process makes

template <typename Time>
int64_t ns_of(Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

void StepRecorder::enter(const char* phase, int64_t step, int64_t microbatch, int64_t layer) {
  if (state_ == State::kOver) return;
  if (std::strcmp(phase, "start") == 0 && ++steps_begun_ == kRecordedStep) {
    state_ = State::kRecording;
    step_ = step;
    marks_.reserve(kMostPieces);
    began_ = std::chrono::steady_clock::now();
    began_at_ = std::chrono::system_clock::now();
  }
  if (state_ == State::kRecording) mark({phase, microbatch, layer, false, 0});
}

void StepRecorder::wait(bool waiting) {
  if (state_ != State::kRecording || marks_.empty()) return;
  mark({marks_.back().phase, marks_.back().microbatch, marks_.back().layer, waiting, 0});
}

void StepRecorder::mark(const Mark& mark) {
  if (marks_.size() == kMostPieces) return;
  marks_.push_back(mark);
  marks_.back().begin_ns = ns_of(std::chrono::steady_clock::now() - began_);
}

StepTimeline StepRecorder::take(int64_t rank) {
  const int64_t end_ns = ns_of(std::chrono::steady_clock::now() - began_);
  StepTimeline timeline{
      rank, step_, ns_of(began_at_.time_since_epoch()), marks_.size() == kMostPieces, {}};
  for (size_t i = 0; i < marks_.size(); ++i) {
    const Mark& mark = marks_[i];
    const int64_t end = i + 1 < marks_.size() ? marks_[i + 1].begin_ns : end_ns;
    if (end > mark.begin_ns)
      timeline.pieces.push_back(
          {mark.phase, mark.microbatch, mark.layer, mark.waiting, mark.begin_ns, end});
  }
  state_ = State::kOver;
  marks_ = {};
  return timeline;
}

std::string timeline_json(const StepTimeline& timeline) {
  text::OrderedJson json = {{"rank", timeline.rank},
                            {"step", timeline.step},
                            {"began_ns", timeline.began_ns},
                            {"cut", timeline.cut},
                            {"pieces", text::OrderedJson::array()}};
  for (const TimelinePiece& piece : timeline.pieces)
    json["pieces"].push_back({{"phase", piece.phase},
                              {"microbatch", piece.microbatch},
                              {"layer", piece.layer},
                              {"waiting", piece.waiting},
                              {"begin_ns", piece.begin_ns},
                              {"end_ns", piece.end_ns}});
  return json.dump() + "\n";
}

StepTimeline parse_timeline(const std::string& path, std::string_view text) {
  try {
    const text::OrderedJson json = text::OrderedJson::parse(text);
    StepTimeline timeline{
        json.at("rank"), json.at("step"), json.at("began_ns"), json.at("cut"), {}};
    for (const text::OrderedJson& piece : json.at("pieces")) {
      timeline.pieces.push_back({piece.at("phase"), piece.at("microbatch"), piece.at("layer"),
                                 piece.at("waiting"), piece.at("begin_ns"), piece.at("end_ns")});
      const TimelinePiece& last = timeline.pieces.back();
      if (last.begin_ns < 0 || last.end_ns < last.begin_ns)
        throw ConfigError(
            fmt::format("{}: piece {} ends before it begins", path, timeline.pieces.size()));
    }
    return timeline;
  } catch (const text::OrderedJson::exception& error) {
    throw ConfigError(fmt::format("{}: not a timeline of a step: {}", path, error.what()));
  }
}

}  // namespace smp::runinfo
