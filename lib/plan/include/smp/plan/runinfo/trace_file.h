#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smp/plan/runinfo/step_trace.h"

// Timelines as a file for trace viewers (ui.perfetto.dev, chrome://tracing): Chrome's trace event
// format, "JSON object format" of "Trace Event Format" (Google, 2016). A rank is a process. Its
// thread 1 has actions and waits, thread 2 the GPU's work for them. The other threads have the
// calls of each of its groups, side by side if they overlap. Times are microseconds with three
// decimals. Pure; any thread.
namespace smp::runinfo {

// A row of threads in the viewer.
struct TraceProcess {
  int64_t pid = 0;
  int64_t rank = 0;        // by which messages find their other end
  std::string name;        // "rank 3 (stage 1, tensor 0, data 1)"
  std::string labels;      // beside the name; "" = none
  int64_t sort_index = 0;  // from top to bottom
};

inline constexpr int64_t kComputeThread = 1;
inline constexpr int64_t kGpuThread = 2;
// Planned processes have pids from here on, so that a planned and a measured file can be merged.
inline constexpr int64_t kPlannedPids = 1 << 20;

// How a rank's times map to those of the file.
struct TraceClock {
  int64_t origin_ns = 0;  // what becomes 0
  int64_t offset_ns = 0;  // added to the rank's times before
  int64_t until_ns = 0;   // by the rank's own times: the end of what has not ended
};

// Writes a file event by event; `out` takes its text.
class TraceWriter {
 public:
  using Out = std::function<void(std::string_view)>;
  // `flows`: each message is in the file with both of its ends, so that an arrow may join them.
  // `world` is the number of ranks.
  TraceWriter(Out out, bool planned, bool flows, int64_t world);

  void add(const TraceProcess& process, const TraceClock& clock, const RankTrace& trace);
  // `about`: metadata of the file, as names and texts.
  void finish(const std::vector<std::pair<std::string, std::string>>& about);

 private:
  void line(const std::string& event);

  Out out_;
  const bool planned_, flows_;
  const int64_t world_;
  bool is_first_ = true;
};

// "rank 3 (stage 1, tensor 0, data 1)".
std::string trace_name(int64_t rank, const mesh::Coord& coord, const mesh::Degrees& degrees);

// The category by which viewers colour and select: "compute", "pipeline", "offload", "reduce",
// "gather", "update".
std::string_view trace_category(schedule::ActionKind kind);

// A slice of a file that was read.
struct ReadSlice {
  int64_t pid = 0;
  int64_t thread = 0;
  std::string name;      // "forward", "wait", "data.gradients"
  std::string category;  // "compute", "wait", "all_reduce"
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t step = 0;
  int64_t microbatch = -1;
  int64_t chunk = 0;
  int64_t layer = -1;
  int64_t bucket = -1;
};

// The slices of a file that TraceWriter wrote, in its order. Throws ConfigError, "PATH: ...", if it
// is not such a file.
std::vector<ReadSlice> parse_trace(const std::string& path, const std::string& text);

}  // namespace smp::runinfo
