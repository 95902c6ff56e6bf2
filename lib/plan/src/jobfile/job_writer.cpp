#include <fmt/format.h>

#include <algorithm>

#include "jobfile/field_table.h"
#include "smp/plan/jobfile/job_format.h"

namespace smp::jobfile {

std::string write_job_yaml(const JobSpec& spec, int indent) {
  std::string out;
  for (const Section& section : job_sections()) {
    const auto depth = section.path.empty() ? 0 : 1 + std::ranges::count(section.path, '.');
    const std::string margin(static_cast<size_t>(indent + 2 * depth), ' ');
    std::string body;
    for (const Field& field : job_fields()) {
      if (field.section != section.path) continue;
      if (field.rule.condition.holds && !field.rule.condition.holds(spec)) continue;
      if (const auto text = value_text(field, spec)) {
        body += fmt::format("{}{}: {}\n", margin, field.key, *text);
      }
    }
    if (body.empty() && depth > 1) continue;  // no key of this part means anything in this job
    if (depth > 0) {
      const std::string_view word = section.path.substr(section.path.rfind('.') + 1);
      out += fmt::format("{}{}:\n", margin.substr(2), word);
    }
    out += body;
  }
  return out;
}

}  // namespace smp::jobfile
