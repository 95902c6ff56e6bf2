#include "smp/launcher/launch/doctor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "smp/launcher/health/host_health.h"
#include "smp/launcher/launch/programs.h"
#include "smp/launcher/probe/network_probe.h"
#include "smp/plan/text/json.h"

namespace smp::launch {
namespace {

health::HealthFinding optional_program(const char* program, const char* needed_for) {
  const std::string file = found_in_path(program);
  return {program, !file.empty(), file.empty() ? "not in PATH" : file,
          file.empty() ? fmt::format("needed for {}: install this program", needed_for) : "", true};
}

health::HealthFinding worker() {
  const std::string file = own_folder() + "/smp-worker";
  const bool there = access(file.c_str(), X_OK) == 0;
  return {"smp-worker", there, there ? file : "not beside smp-launch",
          there ? ""
                : "needed for plans, not for programs: build smp-worker with -DSMP_RUNTIME=ON "
                  "(scripts/build)",
          true};
}

health::HealthFinding fabric() {
  // The library stays loaded, as in lib/comm: unloading would leak what it allocates.
  const void* const library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  return {"libfabric", library != nullptr, library != nullptr ? "libfabric.so.1" : "not there",
          library != nullptr ? "" : "needed for plans on several hosts: install libfabric1", true};
}

// The interfaces whose addresses others can reach, with the state of their links.
health::HealthFinding network() {
  const std::vector<std::string> links = probe::own_links();
  return {"network", !links.empty(),
          links.empty() ? "no address that other hosts can reach"
                        : fmt::format("{}", fmt::join(links, "; ")),
          links.empty() ? "needed for jobs on several hosts: connect this host to a network" : "",
          true};
}

std::vector<health::HealthFinding> all_findings(const health::HostHealth& health) {
  std::vector<health::HealthFinding> all = health::findings_of(health, {});
  all.push_back(network());
  all.push_back(worker());
  all.push_back(fabric());
  all.push_back(optional_program("ssh", "--hosts"));
  all.push_back(optional_program("srun", "--hosts slurm"));
  return all;
}

const char* mark_of(const health::HealthFinding& finding) {
  return finding.ok ? "ok" : finding.optional ? "--" : "NO";
}

std::string as_text(const health::HostHealth& health,
                    const std::vector<health::HealthFinding>& all) {
  std::string text = fmt::format("{}, Linux {}\n", health.name, health.kernel);
  for (const health::HealthFinding& one : all) {
    text += fmt::format("{}  {:<13}  {}\n", mark_of(one), one.name, one.text);
    if (!one.ok) text += fmt::format("{:19}{}\n", "", one.fix);
  }
  return text;
}

std::string as_json(const health::HostHealth& health, const std::vector<health::HealthFinding>& all,
                    bool ok) {
  text::OrderedJson json;
  json["ok"] = ok;
  json["host"] = health.name;
  json["kernel"] = health.kernel;
  json["findings"] = text::OrderedJson::array();
  for (const health::HealthFinding& one : all)
    json["findings"].push_back({{"name", one.name},
                                {"ok", one.ok},
                                {"optional", one.optional},
                                {"text", one.text},
                                {"fix", one.fix}});
  return json.dump(2, ' ', false, text::Json::error_handler_t::replace) + "\n";
}

}  // namespace

Report doctor(bool json) {
  const health::HostHealth health = health::own_health();
  const std::vector<health::HealthFinding> all = all_findings(health);
  Report report;
  for (const health::HealthFinding& one : all) report.ok = report.ok && (one.ok || one.optional);
  report.text = json ? as_json(health, all, report.ok) : as_text(health, all);
  return report;
}

}  // namespace smp::launch
