#pragma once

#include <optional>
#include <string>

#include "smp/planner/calibration/scale_run.h"
#include "smp/planner/search/search_result.h"

namespace smp::report {

struct ReportOptions {
  int64_t top = 1;       // how many of the layouts that fit to list
  bool explain = false;  // every family, every term with its formula and source
  int64_t columns = 0;   // that the terminal is wide; 0 = as wide as a line gets
};

// The report on the terminal: the layout and why, memory of each rank class as terms, the batch
// equation, step time, and what was rejected. Bytes as MiB and GiB. Pure; any thread.
std::string report_text(const search::SearchResult& result, const ReportOptions& options);

// The same for programs: one JSON object, integers in bytes and nanoseconds. `scaled` (--from) is
// its key of that name.
std::string report_json(const search::SearchResult& result, const ReportOptions& options,
                        const std::optional<calibration::ScaledRun>& scaled = std::nullopt);

// One HTML page without scripts and without network, of the same numbers: memory by term, time by
// part, the pipeline, the best layouts, the front of time and memory, the rejected families.
std::string report_html(const search::SearchResult& result);

// What `smp-plan` prints when nothing fits.
std::string infeasible_text(const search::SearchResult& result, const ReportOptions& options);

}  // namespace smp::report
