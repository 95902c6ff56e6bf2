#include "importers/import_world.h"

#include <fmt/format.h>

#include "importers/foreign_keys.h"
#include "smp/plan/base/errors.h"

namespace smp::importers {
namespace {

struct GivenDegree {
  int64_t value = 1;
  std::string origin;  // empty: no file gives it
  std::string file;
};

// Nothing where it is given as a word ("auto") or is out of range: its reader says so.
std::optional<GivenDegree> given_degree(const std::vector<Imported>& files, std::string_view path) {
  for (const Imported& file : files) {
    const ImportedKey* key = file.find(path);
    if (key == nullptr) continue;
    const auto value = whole_value(key->value);
    if (!value || *value < 1) return std::nullopt;
    return GivenDegree{*value, key->origin, file.file};
  }
  return GivenDegree{};
}

}  // namespace

void check_world(const std::vector<Imported>& files) {
  const auto of = [&](std::string_view path) { return given_degree(files, path); };
  const auto hosts = of("cluster.hosts"), processes = of("cluster.processes_per_host");
  const auto pipeline = of("parallel.pipeline_parallel_degree");
  const auto tensor = of("parallel.tensor_parallel_degree");
  const auto context = of("parallel.context_parallel_degree");
  const auto shard = of("parallel.sharded_data_parallel_degree");
  if (!hosts || !processes || !pipeline || !tensor || !context || !shard) return;
  if (hosts->origin.empty() || processes->origin.empty()) return;
  const int64_t world = product_of({hosts->value, processes->value});
  const std::string ranks = fmt::format(
      "the world size {} (cluster.hosts {} x "
      "cluster.processes_per_host {})",
      world, hosts->value, processes->value);
  const int64_t model = product_of({pipeline->value, tensor->value, context->value});
  if (world % model != 0) {
    const GivenDegree& first = pipeline->value > 1 ? *pipeline
                               : tensor->value > 1 ? *tensor
                                                   : *context;
    throw ConfigError(
        fmt::format("{}: pipeline x tensor x context degree = {} x {} x {} = {} does "
                    "not divide {}",
                    first.file, pipeline->value, tensor->value, context->value, model, ranks));
  }
  // The shard axis may lie across the context axis.
  const int64_t data = world / product_of({pipeline->value, tensor->value});
  if (data % shard->value != 0) {
    throw ConfigError(fmt::format(
        "{}: {} gives a shard degree of {}, which does not divide the {} data-parallel ranks of {}",
        shard->file, shard->origin, shard->value, data, ranks));
  }
}

}  // namespace smp::importers
