#include <cupti.h>
#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "busy_time.h"

// What a process asks of its GPU, as CUPTI tells it: CUDA itself loads this library, so that the
// program is as it was.
//
//   CUDA_INJECTION64_PATH=.../libsmp_cuda_activity.so SMP_CUDA_ACTIVITY=OUT PROGRAM ...
//
// Each process that has called CUDA writes OUT.PID, or PID.json into OUT where that is a folder,
// when it ends by return or exit(); one that ends otherwise writes nothing. What began in the
// first SMP_CUDA_ACTIVITY_AFTER_S seconds, from the first activity on, is left out. Other
// processes on the same GPU are not seen: "beside kernels" means the process's own. With
// SMP_CUDA_ACTIVITY_RECORDS=1 all that was seen is written beside it, to OUT.PID.records: a line of
// each kernel, copy and memset, "start_ns end_ns stream bytes name", by one clock for all
// processes.
namespace smp::bench {
namespace {

constexpr size_t kMostKernelNames = 12, kMostCharacters = 100;

struct Settings {
  std::string out;
  double after_s = 0;
  bool keeps_records = false;
  pid_t process;  // a child that it forks ends with the same functions, and has done nothing

  static std::optional<Settings> of_environment() {
    const char* const out = std::getenv("SMP_CUDA_ACTIVITY");
    if (out == nullptr) return std::nullopt;
    Settings result{.out = out, .process = getpid()};
    if (const char* const after = std::getenv("SMP_CUDA_ACTIVITY_AFTER_S")) {
      char* end = nullptr;
      result.after_s = std::strtod(after, &end);
      if (end == after || *end != '\0') {
        fmt::print(stderr, "smp_cuda_activity: SMP_CUDA_ACTIVITY_AFTER_S={} is no number\n", after);
        return std::nullopt;
      }
    }
    const char* const records = std::getenv("SMP_CUDA_ACTIVITY_RECORDS");
    result.keeps_records = records != nullptr && records == std::string_view("1");
    return result;
  }

  std::string path() const {
    std::error_code none;  // then it is no folder
    return std::filesystem::is_directory(out, none) ? fmt::format("{}/{}.json", out, process)
                                                    : fmt::format("{}.{}", out, process);
  }
};

enum class Kind : uint8_t { kKernel, kHostCopy, kOtherCopy, kMemset };

struct Record {
  Span span;
  int64_t bytes;  // 0 of a kernel
  uint32_t context, stream;
  uint32_t name;  // its place in Activity's names
  Kind kind;
};

struct Totals {
  int64_t number = 0, bytes = 0, ns = 0;

  void add(const Record& record) {
    ++number;
    bytes += record.bytes;
    ns += record.span.end_ns - record.span.start_ns;
  }
  std::string json() const {
    return fmt::format(R"({{"number": {}, "bytes": {}, "ns": {}}})", number, bytes, ns);
  }
};

const char* name_of_memory(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE: return "pageable";
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED: return "pinned";
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC: return "managed";
    default: return "unknown";
  }
}

// And of copies between host and device, what memory of the host that is.
std::pair<Kind, std::string> kind_and_name_of(const CUpti_ActivityMemcpy6& copy) {
  switch (copy.copyKind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return {Kind::kHostCopy, fmt::format("host_to_device {}", name_of_memory(copy.srcKind))};
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return {Kind::kHostCopy, fmt::format("device_to_host {}", name_of_memory(copy.dstKind))};
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA: return {Kind::kOtherCopy, "device_to_device"};
    default: return {Kind::kOtherCopy, "other"};
  }
}

std::string readable(const std::string& symbol) {
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr), &std::free);
  return std::string(demangled ? demangled.get() : symbol.c_str()).substr(0, kMostCharacters);
}

// All that has been told; from any thread.
class Activity {
 public:
  void take(CUcontext context, uint32_t stream, uint8_t* buffer, size_t bytes) {
    const std::lock_guard lock(mutex_);
    CUpti_Activity* activity = nullptr;
    while (cuptiActivityGetNextRecord(buffer, bytes, &activity) == CUPTI_SUCCESS) {
      if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(activity);
        keep(kernel, Kind::kKernel, 0, kernel.name != nullptr ? kernel.name : "unknown");
      } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(activity);
        const auto [kind, name] = kind_and_name_of(copy);
        keep(copy, kind, int64_t(copy.bytes), name);
      } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const auto& memset = *reinterpret_cast<const CUpti_ActivityMemset4*>(activity);
        keep(memset, Kind::kMemset, int64_t(memset.bytes), "memset");
      }
    }
    size_t lost = 0;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS)
      lost_ += int64_t(lost);
  }

  std::string json(double after_s) {
    const std::lock_guard lock(mutex_);
    int64_t first = INT64_MAX;
    for (const Record& record : records_) first = std::min(first, record.span.start_ns);
    std::erase_if(records_, [&](const Record& record) {
      return double(record.span.start_ns - first) < after_s * 1e9;
    });
    return fmt::format(
        "{{{},\n \"kernels\": {},\n \"copies\": {{{}}},\n \"memsets\": {},\n "
        "\"streams\": [{}]}}\n",
        times(), kernels(), copies(), memsets(), streams());
  }

  std::string lines() const {
    std::vector<std::string> names(names_.size());
    for (const auto& [name, place] : names_) names[place] = readable(name);
    std::string result;
    for (const Record& record : records_)
      result += fmt::format("{} {} {} {} {}\n", record.span.start_ns, record.span.end_ns,
                            record.stream, record.bytes, names[record.name]);
    return result;
  }

 private:
  using Chosen = std::function<bool(const Record&)>;

  template <class Told>
  void keep(const Told& told, Kind kind, int64_t bytes, std::string_view name) {
    if (told.end == 0) {  // CUPTI could not tell when
      ++lost_;
      return;
    }
    auto place = names_.find(name);
    if (place == names_.end()) place = names_.emplace(name, uint32_t(names_.size())).first;
    records_.push_back({{int64_t(told.start), int64_t(told.end)},
                        bytes,
                        told.contextId,
                        told.streamId,
                        place->second,
                        kind});
  }

  std::vector<Span> spans_of(const Chosen& is_chosen) const {
    std::vector<Span> result;
    for (const Record& record : records_)
      if (is_chosen(record)) result.push_back(record.span);
    return result;
  }

  // Those of most time first.
  std::vector<std::pair<std::string, Totals>> by_name(const Chosen& is_chosen) const {
    std::vector<std::pair<std::string, Totals>> result(names_.size());
    for (const auto& [name, place] : names_) result[place].first = name;
    for (const Record& record : records_)
      if (is_chosen(record)) result[record.name].second.add(record);
    std::erase_if(result, [](const auto& row) { return row.second.number == 0; });
    std::sort(result.begin(), result.end(),
              [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
    return result;
  }

  std::string times() const {
    int64_t first = INT64_MAX, last = 0;
    for (const Record& record : records_) {
      first = std::min(first, record.span.start_ns);
      last = std::max(last, record.span.end_ns);
    }
    const auto kernels = union_of(spans_of([](auto& r) { return r.kind == Kind::kKernel; }));
    const auto copies = union_of(spans_of([](auto& r) { return r.kind == Kind::kHostCopy; }));
    const int64_t copying_ns = length_ns(copies),
                  both_ns = length_ns(intersection_of(kernels, copies));
    return fmt::format(
        "\"window_ns\": {}, \"kernels_busy_ns\": {}, \"host_copies_busy_ns\": {},\n "
        "\"host_copies_beside_kernels_ns\": {}, \"host_copies_beside_kernels_share\": {}, "
        "\"lost_records\": {}",
        records_.empty() ? 0 : last - first, length_ns(kernels), copying_ns, both_ns,
        copying_ns == 0 ? "null" : fmt::format("{:.4f}", double(both_ns) / double(copying_ns)),
        lost_);
  }

  std::string kernels() const {
    const auto all = by_name([](auto& r) { return r.kind == Kind::kKernel; });
    int64_t number = 0, ns = 0;
    std::vector<std::string> longest;
    for (const auto& [symbol, totals] : all) {
      number += totals.number;
      ns += totals.ns;
      if (longest.size() < kMostKernelNames)
        longest.push_back(fmt::format(R"({{"name": {:?}, "number": {}, "ns": {}}})",
                                      readable(symbol), totals.number, totals.ns));
    }
    return fmt::format("{{\"number\": {}, \"ns\": {}, \"names\": {}, \"longest\": [\n  {}]}}",
                       number, ns, all.size(), fmt::join(longest, ",\n  "));
  }

  std::string copies() const {
    std::vector<std::string> rows;
    for (const auto& [name, totals] :
         by_name([](auto& r) { return r.kind == Kind::kHostCopy || r.kind == Kind::kOtherCopy; }))
      rows.push_back(fmt::format("\n  \"{}\": {}", name, totals.json()));
    return fmt::format("{}", fmt::join(rows, ","));
  }

  std::string memsets() const {
    Totals totals;
    for (const Record& record : records_)
      if (record.kind == Kind::kMemset) totals.add(record);
    return totals.json();
  }

  std::string streams() const {
    std::map<std::pair<uint32_t, uint32_t>, std::map<Kind, Totals>> totals;
    for (const Record& record : records_)
      totals[{record.context, record.stream}][record.kind].add(record);
    std::vector<std::string> rows;
    for (auto& [place, of] : totals)
      rows.push_back(fmt::format(
          "\n  {{\"context\": {}, \"stream\": {}, \"kernels\": {}, \"host_copies\": "
          "{}, \"host_copy_bytes\": {}, \"other_copies\": {}, \"memsets\": {}}}",
          place.first, place.second, of[Kind::kKernel].number, of[Kind::kHostCopy].number,
          of[Kind::kHostCopy].bytes, of[Kind::kOtherCopy].number, of[Kind::kMemset].number));
    return fmt::format("{}", fmt::join(rows, ","));
  }

  std::mutex mutex_;
  std::vector<Record> records_;
  std::map<std::string, uint32_t, std::less<>> names_;
  int64_t lost_ = 0;  // no room for them, or no time told
};

// Never destroyed: CUPTI's thread may come while the process ends.
Activity& activity() {
  static Activity* const result = new Activity;
  return *result;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  constexpr size_t kBytes = 1 << 20;
  *buffer = static_cast<uint8_t*>(std::malloc(kBytes));
  *bytes = *buffer != nullptr ? kBytes : 0;
  *most_records = 0;  // as many as it holds
}

void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t,
                          size_t bytes_used) {
  activity().take(context, stream, buffer, bytes_used);
  std::free(buffer);
}

bool is_done(const char* what, CUptiResult result) {
  if (result == CUPTI_SUCCESS) return true;
  const char* text = "unknown error";
  cuptiGetResultString(result, &text);
  fmt::print(stderr, "smp_cuda_activity: {}: {}\n", what, text);
  return false;
}

const std::optional<Settings>& settings() {
  static const auto* const result = new std::optional<Settings>(Settings::of_environment());
  return *result;
}

void write(const std::string& path, const std::string& text) {
  FILE* const file = std::fopen(path.c_str(), "w");
  const bool is_written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  if (file == nullptr || std::fclose(file) != 0 || !is_written)
    fmt::print(stderr, "smp_cuda_activity: {} could not be written\n", path);
}

void write_at_exit() {
  if (getpid() != settings()->process) return;
  is_done("the last records", cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  write(settings()->path(), activity().json(settings()->after_s));
  if (settings()->keeps_records) write(settings()->path() + ".records", activity().lines());
}

void begin() {
  if (!is_done("buffers", cuptiActivityRegisterCallbacks(give_buffer, take_buffer))) return;
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    if (!is_done("records", cuptiActivityEnable(kind))) return;
  std::atexit(write_at_exit);
}

}  // namespace
}  // namespace smp::bench

// What CUDA calls, in cuInit(). The program goes on without records where there can be none.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() {
  if (smp::bench::settings()) smp::bench::begin();
  return 1;
}
