#include "importers/smp_dictionary.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/base/errors.h"

namespace smp::importers {
namespace {

// The map under `key`, or nullptr.
const text::YamlNode* map_at(const text::YamlNode& node, std::string_view key) {
  if (node.kind != text::YamlNode::Kind::kMap) return nullptr;
  const text::YamlEntry* entry = node.find(key);
  return entry != nullptr && entry->value.kind == text::YamlNode::Kind::kMap ? &entry->value
                                                                             : nullptr;
}

void refuse_others(const text::YamlNode& map, const std::vector<std::string_view>& known,
                   std::string_view where, text::Diagnostics& diagnostics) {
  for (const text::YamlEntry& entry : map.entries) {
    if (std::ranges::count(known, entry.key) > 0) continue;
    std::string message =
        fmt::format("unknown key {} {}", text::quoted_for_message(entry.key), where);
    if (entry.key == "dataparallel") {
      message +=
          ": only one smdistributed strategy can be enabled, and only modelparallel has degrees to "
          "import";
    }
    diagnostics.error(entry.place, message);
  }
}

bool says_true(const text::YamlNode& map, std::string_view key) {
  const text::YamlEntry* entry = map.find(key);
  return entry != nullptr && entry->value.text == "true" && !entry->value.quoted;
}

}  // namespace

ForeignFormat smp_version(const text::YamlNode& root, const std::string& path) {
  if (root.find("torch_distributed") != nullptr) return ForeignFormat::kSmpV2;
  if (root.find("mpi") != nullptr) return ForeignFormat::kSmpV1;
  const text::YamlNode* parameters = &root;
  for (const std::string_view step : {"smdistributed", "modelparallel", "parameters"}) {
    if (const text::YamlEntry* entry = parameters->find(step)) parameters = &entry->value;
  }
  const auto only = [&](const std::vector<ForeignKey>& own, const std::vector<ForeignKey>& other) {
    return std::ranges::any_of(parameters->entries, [&](const text::YamlEntry& entry) {
      const auto is = [&](const ForeignKey& row) { return row.key == entry.key; };
      return std::ranges::any_of(own, is) && std::ranges::none_of(other, is);
    });
  };
  const bool one = only(smp_v1_keys(), smp_v2_keys());
  const bool two = only(smp_v2_keys(), smp_v1_keys());
  if (one != two) return one ? ForeignFormat::kSmpV1 : ForeignFormat::kSmpV2;
  throw ConfigError(
      fmt::format("{}: an SMP dictionary {}: give --from smp-v1 or --from smp-v2", path,
                  one ? "with keys of both versions" : "whose keys exist in both versions"));
}

const text::YamlNode* smp_parameters(const text::YamlNode& root, text::Diagnostics& diagnostics,
                                     Imported&) {
  const text::YamlNode* distributed = map_at(root, "smdistributed");
  const text::YamlNode* parallel = distributed != nullptr ? map_at(*distributed, "modelparallel")
                                                          : map_at(root, "modelparallel");
  const bool wrapped =
      root.kind == text::YamlNode::Kind::kMap &&
      (root.find("smdistributed") != nullptr || root.find("modelparallel") != nullptr);
  if (!wrapped) return &root;
  refuse_others(root, {"smdistributed", "modelparallel", "mpi", "torch_distributed"},
                "beside smdistributed", diagnostics);
  if (distributed != nullptr) {
    refuse_others(*distributed, {"modelparallel"}, "in smdistributed", diagnostics);
  }
  if (parallel == nullptr) {
    diagnostics.error(root.place, "smdistributed: modelparallel with its parameters is missing");
    return nullptr;
  }
  refuse_others(*parallel, {"enabled", "parameters"}, "in modelparallel", diagnostics);
  if (!says_true(*parallel, "enabled")) {
    diagnostics.error(parallel->place, "modelparallel is not enabled: write enabled: true");
  }
  const text::YamlNode* parameters = map_at(*parallel, "parameters");
  if (parameters == nullptr) {
    diagnostics.error(parallel->place, "modelparallel: the map parameters is missing");
  }
  return parameters;
}

std::optional<int64_t> smp_processes_per_host(const text::YamlNode& root,
                                              text::Diagnostics& diagnostics, Imported& out) {
  const text::YamlNode* mpi = map_at(root, "mpi");
  if (mpi == nullptr) return std::nullopt;
  refuse_others(*mpi, {"enabled", "processes_per_host", "custom_mpi_options"}, "in mpi",
                diagnostics);
  if (!says_true(*mpi, "enabled")) {
    diagnostics.error(mpi->place, "mpi is not enabled: write enabled: true");
  }
  if (mpi->find("custom_mpi_options") != nullptr) {
    out.notes.push_back("mpi.custom_mpi_options has no effect on a plan");
  }
  const text::YamlEntry* entry = mpi->find("processes_per_host");
  if (entry == nullptr) return std::nullopt;
  const auto value = whole_value(entry->value.text);
  if (!value || *value < 1 || entry->value.quoted) {
    diagnostics.error(
        entry->value.place,
        fmt::format("mpi.processes_per_host must be a whole number of at least 1, not "
                    "{}",
                    text::described(entry->value)));
    return std::nullopt;
  }
  return value;
}

text::YamlNode refuse_other_version(const text::YamlNode& parameters,
                                    const std::vector<ForeignKey>& own,
                                    const std::vector<ForeignKey>& other,
                                    std::string_view other_name, text::Diagnostics& diagnostics) {
  text::YamlNode rest = parameters;
  std::erase_if(rest.entries, [&](const text::YamlEntry& entry) {
    const auto is = [&](const ForeignKey& row) { return row.key == entry.key; };
    if (std::ranges::any_of(own, is) || std::ranges::none_of(other, is)) return false;
    diagnostics.error(entry.place, fmt::format("{} is a key of {}: write keys of one version only",
                                               entry.key, other_name));
    return true;
  });
  return rest;
}

void note_framework(ForeignReader& reader, std::string_view framework) {
  reader.note(
      fmt::format("the job is for smp's engine, which needs training.steps and training.data.path; "
                  "smp-plan --set parallel.framework={} prices the job as SMP runs it",
                  framework));
}

void set_shard_over_all(ForeignReader& reader, std::string_view sharding,
                        const ImportContext& context, int64_t context_degree, int64_t tensor_degree,
                        int64_t pipeline_degree, std::string_view origin,
                        std::optional<int64_t> processes_per_host, bool offloads_parameters) {
  ImportContext known = context;
  if (processes_per_host) known.processes_per_host = processes_per_host;
  // Degrees that no job file takes: its reader says so.
  constexpr int64_t kMostDegree = 1 << 20;
  if (std::max({context_degree, tensor_degree, pipeline_degree}) > kMostDegree) return;
  const int64_t model_ranks = product_of({context_degree, tensor_degree, pipeline_degree});
  const auto world = known.world();
  if (!world) {
    reader.set("parallel.sharding", std::string(sharding), std::string(origin));
    if (sharding == "none") return;
    reader.note(
        "the file shards over all data-parallel ranks without giving their number: give --hosts "
        "and --processes-per-host, or the planner chooses the degree");
    return;
  }
  if (*world % model_ranks != 0) {
    reader.error("",
                 fmt::format("{} ranks are not divisible by tensor x pipeline x context degree = "
                             "{}",
                             *world, model_ranks));
    return;
  }
  const int64_t data = *world / model_ranks;
  const bool shards = sharding != "none";
  // With one data-parallel rank there is nothing to shard over, whatever the file says.
  const bool keeps = shards && (data > 1 || (offloads_parameters && sharding == "parameters"));
  reader.set("parallel.sharding", keeps ? std::string(sharding) : "none", std::string(origin));
  if (keeps) {
    reader.set("parallel.sharded_data_parallel_degree", fmt::format("{}", data),
               fmt::format("all {} data-parallel ranks", data));
  }
}

}  // namespace smp::importers
