#include "record/trace_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "gpu/gpu.h"
#include "smp/comm/call_log.h"
#include "smp/comm/communicator.h"
#include "smp/comm/jobs/fabric.h"
#include "smp/plan/base/xxh64.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/plan/runinfo/trace_file.h"
#include "smp/rendezvous/sockets/host_identity.h"

namespace smp::record {
namespace {

constexpr const char* kTraceLabel = "setup.trace";  // not counted as traffic of a step
constexpr size_t kPartBytes = 1 << 20;              // bytes of the file that are written at once

// The message ahead of a rank's slices to rank 0.
struct SliceHeader {
  int64_t count = 0;
  int64_t cut = 0;
  int64_t begin_ns = 0;  // of the first
  int64_t now_ns = 0;
};

template <class Value>
std::vector<Value> gathered(comm::Communicator& world, const Value& own) {
  std::vector<Value> all(static_cast<size_t>(world.size()));
  world.all_gather(&own, all.data(), sizeof own, DType::kU8, kTraceLabel)->wait();
  return all;
}

// Rank 0's side.
HostClock measure_clock(comm::Communicator& world, int peer) {
  HostClock best{0, std::numeric_limits<int64_t>::max()};
  for (int round = 0; round < kClockRounds; ++round) {
    int64_t there = 0;
    const int64_t sent = runinfo::steady_ns();
    world.send(&sent, 1, DType::kI64, peer, kTraceLabel)->wait();
    world.recv(&there, 1, DType::kI64, peer, kTraceLabel)->wait();
    const int64_t back = runinfo::steady_ns();
    const int64_t half = (back - sent + 1) / 2;
    if (half < best.uncertainty_ns) best = {sent + (back - sent) / 2 - there, half};
  }
  return best;
}

void answer_clock(comm::Communicator& world) {
  for (int round = 0; round < kClockRounds; ++round) {
    int64_t asked = 0;
    world.recv(&asked, 1, DType::kI64, 0, kTraceLabel)->wait();
    const int64_t now = runinfo::steady_ns();
    world.send(&now, 1, DType::kI64, 0, kTraceLabel)->wait();
  }
}

std::string clock_text(const HostClock& clock) {
  return fmt::format("clock offset {:+.1f} us, uncertainty {:.1f} us",
                     static_cast<double>(clock.offset_ns) * 1e-3,
                     static_cast<double>(clock.uncertainty_ns) * 1e-3);
}

// A file that is written in large parts. A failed write is remembered and not thrown, because the
// ranks' slices must still be received.
class FileInParts {
 public:
  FileInParts(const std::string& path, files::FileCalls& calls) {
    keep([&] { file_.emplace(path, calls); });
  }

  void add(std::string_view text) {
    part_ += text;
    if (part_.size() >= kPartBytes) flush();
  }
  // The error; "" = none, and the file exists.
  std::string end() {
    flush();
    keep([&] { file_->commit(); });
    return problem_;
  }

 private:
  template <class Write>
  void keep(const Write& write) {
    if (!problem_.empty()) return;
    try {
      write();
    } catch (const std::runtime_error& error) {
      problem_ = error.what();
    }
  }
  void flush() {
    keep([&] { file_->write_at(bytes_, part_.data(), static_cast<int64_t>(part_.size())); });
    bytes_ += static_cast<int64_t>(part_.size());
    part_.clear();
  }

  std::optional<files::AtomicFile> file_;
  std::string part_, problem_;
  int64_t bytes_ = 0;
};

}  // namespace

std::vector<HostClock> align_clocks(comm::Communicator& world, std::string_view host) {
  const std::vector<uint64_t> hosts =
      gathered(world, xxh64(host.data(), static_cast<int64_t>(host.size())));
  std::vector<HostClock> clocks(hosts.size());
  for (int rank = 1; rank < world.size(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    const auto first = std::find(hosts.begin(), hosts.end(), hosts[at]) - hosts.begin();
    if (first == rank && world.rank() == 0) clocks[at] = measure_clock(world, rank);
    if (first == rank && world.rank() == rank) answer_clock(world);
    if (first < rank) clocks[at] = clocks[static_cast<size_t>(first)];
  }
  world
      .broadcast(clocks.data(), static_cast<int64_t>(clocks.size() * sizeof(HostClock)), DType::kU8,
                 0, kTraceLabel)
      ->wait();
  return clocks;
}

// Slices and log are both in the order of the calls. The log has further calls in between, and may
// lack some.
void set_call_ends(std::span<runinfo::TraceSlice> slices, const comm::CallLog& log) {
  constexpr int64_t kSlackNs = 20'000;  // between two readings of the clock
  const int64_t now = runinfo::steady_ns();
  const std::vector<comm::LoggedCall> calls = log.calls();
  size_t next = calls.size();
  for (size_t i = slices.size(); i-- > 0;) {
    runinfo::TraceSlice& slice = slices[i];
    if (slice.kind != runinfo::SliceKind::kCall) continue;
    for (size_t at = next; at-- > 0;) {
      const comm::LoggedCall& call = calls[at];
      if (now - call.enqueued.count() < slice.begin_ns - kSlackNs) break;
      const std::string_view label =
          std::string_view(call.label).substr(0, runinfo::TraceSlice::kNameBytes - 1);
      if (call.op != slice.op || label != slice.label_text()) continue;
      next = at;
      if (call.state != comm::LoggedCall::State::kDone) break;
      const int64_t end = std::max(slice.begin_ns, now - call.ended.count());
      slice.end_ns = slice.end_ns == runinfo::TraceSlice::kOpen ? end : std::min(slice.end_ns, end);
      break;
    }
  }
}

TraceSession::TraceSession(const Plan& plan, comm::Communicator& world, std::string run_dir,
                           std::FILE* progress, gpu::GpuMarks* marks, files::FileCalls& calls)
    : plan_(plan),
      world_(world),
      run_dir_(std::move(run_dir)),
      progress_(progress),
      marks_(marks),
      calls_(calls) {}

void TraceSession::tell(const std::string& line) const {
  if (progress_ == nullptr || world_.rank() != 0) return;
  std::fputs((line + "\n").c_str(), progress_);
  std::fflush(progress_);
}

void TraceSession::start(int64_t first, const std::vector<schedule::Action>& actions) {
  const std::vector<int64_t>& steps = plan_.job.training.trace.steps;
  if (steps.empty() || run_dir_.empty()) return;
  if (steps[1] < first)
    return tell(
        fmt::format("note: no step is traced: the last step of training.trace.steps is {}, and "
                    "this run starts with step {}",
                    steps[1], first));
  first_ = std::max(steps[0], first);
  last_ = steps[1];
  const size_t of_step =
      runinfo::slices_of_step(actions, plan_.degrees) + (marks_ != nullptr ? actions.size() : 0);
  const auto count = static_cast<size_t>(last_ - first_ + 1);
  tracer_.reserve(count < runinfo::StepTracer::kMostSlices / of_step
                      ? count * of_step
                      : runinfo::StepTracer::kMostSlices);
}

void TraceSession::begin_step(int64_t step) {
  if (!is_wanted() || step < first_ || step > last_) return;
  if (clocks_.empty()) {
    if (marks_ != nullptr) marks_->align();
    tracer_.mark_actions(marks_);
    clocks_ = align_clocks(world_, sockets::own_host_identity());
  }
  slices_before_ = tracer_.slices().size();
  tracer_.begin_step(step);
}

void TraceSession::end_step(int64_t step) {
  if (!tracer_.is_on()) return;
  tracer_.end_step();
  if (const std::shared_ptr<const comm::CallLog> log = world_.call_log(); log != nullptr)
    set_call_ends(std::span(tracer_.slices()).subspan(slices_before_), *log);
  tracer_.add_gpu_slices();
  if (step == last_) write_file();
}

void TraceSession::finish() {
  if (is_wanted() && !clocks_.empty()) write_file();
}

runinfo::RankTrace TraceSession::own_trace() const {
  return {world_.rank(), tracer_.cut(), tracer_.slices()};
}

void TraceSession::write_file() {
  last_ = 0;
  runinfo::RankTrace trace = own_trace();
  tracer_.clear();
  const SliceHeader own{static_cast<int64_t>(trace.slices.size()), trace.cut ? 1 : 0,
                        trace.slices.empty() ? 0 : trace.slices.front().begin_ns,
                        runinfo::steady_ns()};
  const std::vector<SliceHeader> headers = gathered(world_, own);
  const auto bytes_of_slices = [](const SliceHeader& header) {
    return header.count * static_cast<int64_t>(sizeof(runinfo::TraceSlice));
  };
  if (world_.rank() > 0) {
    world_.send(trace.slices.data(), bytes_of_slices(own), DType::kU8, 0, kTraceLabel)->wait();
    return;
  }
  int64_t origin = std::numeric_limits<int64_t>::max();
  bool is_cut = false;
  for (size_t rank = 0; rank < headers.size(); ++rank) {
    origin = std::min(origin, headers[rank].begin_ns + clocks_[rank].offset_ns);
    is_cut = is_cut || headers[rank].cut != 0;
  }
  const int64_t first = trace.slices.front().step, last = trace.slices.back().step;
  const std::string path = run_dir_ + "/" + runinfo::kTraceFile;
  const mesh::Mesh mesh(plan_.degrees, plan_.job.parallel.placement_strategy);
  FileInParts file(path, calls_);
  runinfo::TraceWriter writer([&](std::string_view text) { file.add(text); }, false, !is_cut,
                              world_.size());
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    if (rank > 0) {
      trace = {rank, headers[at].cut != 0, {}};
      trace.slices.resize(static_cast<size_t>(headers[at].count));
      world_.recv(trace.slices.data(), bytes_of_slices(headers[at]), DType::kU8, rank, kTraceLabel)
          ->wait();
    }
    const bool own_clock = clocks_[at].uncertainty_ns == 0;
    writer.add({rank, rank, runinfo::trace_name(rank, mesh.coord_of(rank), plan_.degrees),
                own_clock ? "" : clock_text(clocks_[at]), 2 * rank + 1},
               {origin, clocks_[at].offset_ns, headers[at].now_ns}, trace);
  }
  int64_t uncertainty = 0;
  for (const HostClock& clock : clocks_) uncertainty = std::max(uncertainty, clock.uncertainty_ns);
  std::vector<std::pair<std::string, std::string>> about = {
      {"job", plan_.job.name},
      {"steps", fmt::format("{} to {}", first, last)},
      {"clock uncertainty", fmt::format("{:.1f} us", static_cast<double>(uncertainty) * 1e-3)}};
  if (is_cut)
    about.emplace_back("cut", fmt::format("each rank keeps at most {} slices", own.count));
  writer.finish(about);
  const std::string problem = file.end();
  if (!problem.empty()) return tell("note: the timeline could not be written: " + problem);
  tell(fmt::format(
      "the timeline of steps {} to {} is in {}{}", first, last, path,
      is_cut ? fmt::format(", cut after {} slices a rank: trace fewer steps", own.count) : ""));
}

void TraceSession::abandon() noexcept {
  if (!is_wanted() || tracer_.slices().empty()) return;
  last_ = 0;
  try {
    const std::string folder = run_dir_ + "/" + runinfo::kTraceFolder;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const runinfo::RankTrace trace = own_trace();
    const mesh::Mesh mesh(plan_.degrees, plan_.job.parallel.placement_strategy);
    const auto at = static_cast<size_t>(trace.rank);
    std::string text;
    runinfo::TraceWriter writer([&](std::string_view part) { text += part; }, false, false,
                                world_.size());
    writer.add({trace.rank, trace.rank,
                runinfo::trace_name(trace.rank, mesh.coord_of(trace.rank), plan_.degrees),
                clock_text(clocks_.at(at)), 2 * trace.rank + 1},
               {trace.slices.front().begin_ns, 0, runinfo::steady_ns()}, trace);
    writer.finish({{"job", plan_.job.name}, {"ended", "the run failed"}});
    files::write_file_atomically(fmt::format("{}/rank-{}.json", folder, trace.rank), text, calls_);
    tell("timelines of the ranks until the failure are in " + folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: the timeline could not be written: %s\n", world_.rank(),
                 error.what());
  }
}

}  // namespace smp::record
