#include "smp/plan/runinfo/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::runinfo {
namespace {

constexpr int64_t kThreadsOfGroup = 1000;
constexpr int64_t kMessagesOfPair = 1 << 20;
constexpr int64_t kAxes = 16;

std::string json_string(std::string_view text) {
  return text::OrderedJson(std::string(text))
      .dump(-1, ' ', true, text::OrderedJson::error_handler_t::replace);
}

std::string micros_text(int64_t ns) {
  const char* sign = ns < 0 ? "-" : "";
  const int64_t size = std::abs(ns);
  return fmt::format("{}{}.{:03}", sign, size / 1000, size % 1000);
}

std::string about_action(const TraceSlice& slice) {
  const schedule::Action& action = slice.action;
  std::string text = fmt::format("\"step\":{}", slice.step);
  const auto add = [&](const char* name, int64_t value, int64_t from) {
    if (value >= from) text += fmt::format(",\"{}\":{}", name, value);
  };
  add("microbatch", action.microbatch, 0);
  add("chunk", action.chunk, 1);
  add("layer", action.layer, 0);
  add("bucket", action.bucket, 0);
  add("stage", action.peer, 0);
  if (action.payload != schedule::Payload::kNone)
    text += fmt::format(",\"payload\":\"{}\"", name_of(action.payload));
  return text;
}

struct SliceWords {
  std::string name, category, args;
};

SliceWords words_of_slice(const TraceSlice& slice) {
  const std::string step = fmt::format("\"step\":{}", slice.step);
  switch (slice.kind) {
    case SliceKind::kStep: return {fmt::format("step {}", slice.step), "step", step};
    case SliceKind::kAction:
    case SliceKind::kOnGpu:
      return {std::string(name_of(slice.action.kind)),
              std::string(trace_category(slice.action.kind)), about_action(slice)};
    case SliceKind::kWait: {
      const std::string label(slice.label_text());
      return {"wait", "wait", label.empty() ? step : step + ",\"for\":" + json_string(label)};
    }
    case SliceKind::kCall: {
      std::string args =
          fmt::format("{},\"bytes\":{},\"ranks\":{}", step, slice.bytes, slice.members);
      if (slice.peer >= 0) args += fmt::format(",\"peer\":{}", slice.peer);
      return {std::string(slice.label_text()), std::string(name_of(slice.op)), args};
    }
  }
  check_failed(__FILE__, __LINE__, "unknown slice");
}

// Deals the calls of a group to as many threads as are under way at once.
class CallThreads {
 public:
  int64_t of(const TraceSlice& slice, int64_t end_ns) {
    std::vector<int64_t>& free_at = groups_[slice.axis];
    size_t lane = 0;
    while (lane < free_at.size() && free_at[lane] > slice.begin_ns) ++lane;
    if (lane == free_at.size()) free_at.emplace_back();
    free_at[lane] = end_ns;
    return kThreadsOfGroup * (static_cast<int64_t>(slice.axis) + 1) + static_cast<int64_t>(lane);
  }
  // Their names by thread.
  std::map<int64_t, std::string> names() const {
    std::map<int64_t, std::string> names;
    for (const auto& [axis, free_at] : groups_) {
      for (size_t lane = 0; lane < free_at.size(); ++lane) {
        const std::string number = lane == 0 ? "" : fmt::format(" {}", lane + 1);
        names[kThreadsOfGroup * (static_cast<int64_t>(axis) + 1) + static_cast<int64_t>(lane)] =
            fmt::format("{} group{}", name_of(axis), number);
      }
    }
    return names;
  }

 private:
  std::map<mesh::Axis, std::vector<int64_t>> groups_;
};

int64_t ns_of_micros(const text::OrderedJson& value, const std::string& path) {
  constexpr double kMostMicros = 1e15;  // 30 years
  const double size = value.get<double>();
  if (!(std::abs(size) <= kMostMicros))
    throw ConfigError(fmt::format("{}: not a trace: {} microseconds", path, value.dump()));
  return std::llround(size * 1000);
}

int64_t integer_of(const text::OrderedJson& value, const std::string& path) {
  if (!value.is_number_integer())
    throw ConfigError(fmt::format("{}: not a trace: {} is not a whole number", path, value.dump()));
  return value.get<int64_t>();
}

}  // namespace

std::string_view trace_category(schedule::ActionKind kind) {
  switch (kind) {
    case schedule::ActionKind::kReceive:
    case schedule::ActionKind::kReceiveWait:
    case schedule::ActionKind::kSend:
    case schedule::ActionKind::kSendWait: return "pipeline";
    case schedule::ActionKind::kForward:
    case schedule::ActionKind::kBackward:
    case schedule::ActionKind::kWeight:
    case schedule::ActionKind::kRecompute: return "compute";
    case schedule::ActionKind::kOffload:
    case schedule::ActionKind::kFetch: return "offload";
    case schedule::ActionKind::kRouterLoads:
    case schedule::ActionKind::kReduceKv:
    case schedule::ActionKind::kReduce:
    case schedule::ActionKind::kReduceWait:
    case schedule::ActionKind::kReduceReplicas:
    case schedule::ActionKind::kReduceReplicasWait: return "reduce";
    case schedule::ActionKind::kGradientNorm:
    case schedule::ActionKind::kStep:
    case schedule::ActionKind::kUpdate: return "update";
    case schedule::ActionKind::kGather:
    case schedule::ActionKind::kGatherWait:
    case schedule::ActionKind::kFree: return "gather";
  }
  check_failed(__FILE__, __LINE__, "unknown action");
}

std::string trace_name(int64_t rank, const mesh::Coord& coord, const mesh::Degrees& degrees) {
  return fmt::format("rank {} (stage {}, tensor {}, data {})", rank, coord.pipeline, coord.tensor,
                     coord.data(degrees));
}

TraceWriter::TraceWriter(Out out, bool planned, bool flows, int64_t world)
    : out_(std::move(out)), planned_(planned), flows_(flows), world_(world) {
  out_("{\"traceEvents\":[\n");
}

void TraceWriter::line(const std::string& event) {
  out_(is_first_ ? event : ",\n" + event);
  is_first_ = false;
}

void TraceWriter::add(const TraceProcess& process, const TraceClock& clock,
                      const RankTrace& trace) {
  const int64_t pid = process.pid;
  const auto about_process = [&](const char* what, const std::string& args) {
    line(
        fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":0,"args":{{{}}}}})", what, pid, args));
  };
  const auto name_thread = [&](int64_t thread, const std::string& name) {
    line(fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                     pid, thread, json_string(name)));
    line(fmt::format(
        R"({{"name":"thread_sort_index","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
        pid, thread, thread));
  };
  about_process("process_name", "\"name\":" + json_string(process.name));
  about_process("process_sort_index", fmt::format("\"sort_index\":{}", process.sort_index));
  if (!process.labels.empty())
    about_process("process_labels", "\"labels\":" + json_string(process.labels));
  name_thread(kComputeThread, planned_ ? "planned compute" : "compute");

  const auto time = [&](int64_t ns) { return micros_text(ns + clock.offset_ns - clock.origin_ns); };
  CallThreads threads;
  bool has_gpu = false;
  std::map<std::pair<mesh::Axis, int64_t>, int64_t> sent, received;  // by group and peer
  for (const TraceSlice& slice : trace.slices) {
    const bool is_open = slice.end_ns == TraceSlice::kOpen;
    const int64_t end = is_open ? std::max(clock.until_ns, slice.begin_ns) : slice.end_ns;
    const SliceWords words = words_of_slice(slice);
    const bool is_call = slice.kind == SliceKind::kCall;
    const bool is_on_gpu = slice.kind == SliceKind::kOnGpu;
    if (is_on_gpu && !has_gpu) name_thread(kGpuThread, "GPU");
    has_gpu = has_gpu || is_on_gpu;
    const int64_t thread = is_call     ? threads.of(slice, end)
                           : is_on_gpu ? kGpuThread
                                       : kComputeThread;
    line(fmt::format(
        R"({{"name":{},"cat":"{}","ph":"X","ts":{},"dur":{},"pid":{},"tid":{},"args":{{{}{}}}}})",
        json_string(words.name), words.category, time(slice.begin_ns),
        micros_text(end - slice.begin_ns), pid, thread, words.args,
        is_open ? ",\"open\":true" : ""));
    if (slice.kind == SliceKind::kAction && slice.bytes > 0)
      line(
          fmt::format(R"({{"name":"live memory","ph":"C","ts":{},"pid":{},"args":{{"bytes":{}}}}})",
                      time(end), pid, slice.bytes));
    const bool sends = is_call && slice.op == mesh::CollectiveOp::kSend;
    const bool receives = is_call && slice.op == mesh::CollectiveOp::kRecv;
    if (!flows_ || (!sends && !receives)) continue;
    // Messages of a group go from one rank to another in their order.
    const int64_t number = (sends ? sent : received)[{slice.axis, slice.peer}]++;
    const int64_t from = sends ? process.rank : slice.peer, to = sends ? slice.peer : process.rank;
    const int64_t id =
        ((from * world_ + to) * kAxes + static_cast<int64_t>(slice.axis)) * kMessagesOfPair +
        number % kMessagesOfPair;
    // An arrow ends in the slice that is under way there, so just before that ends.
    const int64_t at = sends ? slice.begin_ns : std::max(slice.begin_ns, end - 1);
    line(fmt::format(
        R"({{"name":"message","cat":"{}","ph":"{}",{}"id":{},"ts":{},"pid":{},"tid":{}}})",
        planned_ ? "planned message" : "message", sends ? "s" : "f", sends ? "" : R"("bp":"e",)",
        id, time(at), pid, thread));
  }
  for (const auto& [thread, name] : threads.names())
    name_thread(thread, planned_ ? "planned " + name : name);
}

void TraceWriter::finish(const std::vector<std::pair<std::string, std::string>>& about) {
  std::string text = "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{";
  text += fmt::format("\"program\":\"smp\",\"kind\":\"{}\"", planned_ ? "planned" : "measured");
  for (const auto& [name, value] : about)
    text += fmt::format(",{}:{}", json_string(name), json_string(value));
  out_(text + "}}\n");
}

std::vector<ReadSlice> parse_trace(const std::string& path, const std::string& text) {
  try {
    const text::OrderedJson json = text::OrderedJson::parse(text);
    std::vector<ReadSlice> slices;
    for (const text::OrderedJson& event : json.at("traceEvents")) {
      if (event.at("ph").get<std::string>() != "X") continue;
      ReadSlice slice;
      slice.pid = integer_of(event.at("pid"), path);
      slice.thread = integer_of(event.at("tid"), path);
      slice.name = event.at("name");
      slice.category = event.at("cat");
      slice.begin_ns = ns_of_micros(event.at("ts"), path);
      slice.end_ns = slice.begin_ns + ns_of_micros(event.at("dur"), path);
      const text::OrderedJson& args = event.at("args");
      const auto number_or = [&](const char* name, int64_t otherwise) {
        const auto found = args.find(name);
        return found == args.end() ? otherwise : integer_of(*found, path);
      };
      slice.step = number_or("step", 0);
      slice.microbatch = number_or("microbatch", -1);
      slice.chunk = number_or("chunk", 0);
      slice.layer = number_or("layer", -1);
      slice.bucket = number_or("bucket", -1);
      slices.push_back(std::move(slice));
      if (slices.back().end_ns < slices.back().begin_ns)
        throw ConfigError(fmt::format("{}: slice {} ends before it begins", path, slices.size()));
    }
    return slices;
  } catch (const text::OrderedJson::exception& error) {
    throw ConfigError(fmt::format("{}: no trace: {}", path, error.what()));
  }
}

}  // namespace smp::runinfo
