#include "smp/interchange/exporters/export.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/rules/degree_rules.h"

// tests/golden/interchange/export holds jobs whose layout is pinned, and in a folder of the same
// name what each target says of it: its file and its notes, or the refusal. scripts/check-exports
// reads the same files with the targets' own programs. SMP_UPDATE_GOLDEN=1 writes them anew.

using namespace smp;
using namespace smp::exporters;
using namespace smp::importers;
using namespace smp::jobfile;
using namespace smp::mesh;

namespace {

const std::string kFolder = SMP_SOURCE_DIR "/tests/golden/interchange/export/";

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> cases() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".yaml") out.push_back(entry.path().stem().string());
  }
  std::ranges::sort(out);
  return out;
}

// Of a job whose every key that matters here is pinned.
Plan plan_of(const std::string& name) {
  Plan plan;
  plan.job = read_job({load_job_source(kFolder + name + ".yaml")});
  close_plain_keys(plan.job);
  plan.degrees = rules::degrees_of(plan.job);
  return plan;
}

std::string_view suffix_of(ExportTarget target) {
  switch (target) {
    case ExportTarget::kDeepSpeed:
    case ExportTarget::kSageMakerV1:
    case ExportTarget::kSageMakerV2: return ".json";
    case ExportTarget::kTorchtitan:
    case ExportTarget::kSageMakerSdk3: return ".py";
    case ExportTarget::kAccelerate: return ".yaml.txt";
    default: return ".sh";
  }
}

// The files that a target gives: its text and its notes, or its refusal.
std::vector<std::pair<std::string, std::string>> files_of(const Plan& plan, ExportTarget target) {
  const std::string name(name_of(target));
  try {
    const Exported out = export_plan(plan, target, "plan.yaml");
    std::string notes;
    for (const std::string& note : out.notes) notes += note + "\n";
    return {{name + std::string(suffix_of(target)), out.text}, {name + ".notes", notes}};
  } catch (const ConfigError& error) {
    return {{name + ".refused", std::string(error.what()) + "\n"}};
  }
}

struct Return {
  ExportTarget target;
  ForeignFormat format;
};
constexpr Return kReturns[] = {
    {ExportTarget::kDeepSpeed, ForeignFormat::kDeepSpeed},
    {ExportTarget::kMegatron, ForeignFormat::kMegatron},
    {ExportTarget::kAccelerate, ForeignFormat::kAccelerate},
    {ExportTarget::kSageMakerV1, ForeignFormat::kSmpV1},
    {ExportTarget::kSageMakerV2, ForeignFormat::kSmpV2},
    {ExportTarget::kSageMakerSdk3, ForeignFormat::kSageMaker},
};

std::string value_of(const Imported& file, std::string_view path, std::string_view absent) {
  const ImportedKey* key = file.find(path);
  return key != nullptr ? key->value : std::string(absent);
}

}  // namespace

TEST_CASE("pinned plans become the files beside them, or the refusals") {
  for (const std::string& name : cases()) {
    const Plan plan = plan_of(name);
    std::vector<std::string> written;
    for (int i = 0; i < kExportTargets; ++i) {
      for (const auto& [file, text] : files_of(plan, static_cast<ExportTarget>(i))) {
        const std::string path = kFolder + name + "/" + file;
        if (std::getenv("SMP_UPDATE_GOLDEN") != nullptr) {
          std::filesystem::create_directories(kFolder + name);
          std::ofstream(path) << text;
        }
        INFO(path);
        CHECK(text == contents(path));
        written.push_back(file);
      }
    }
    for (const auto& entry : std::filesystem::directory_iterator(kFolder + name)) {
      INFO(entry.path().string(), " is nobody's");
      CHECK(std::ranges::count(written, entry.path().filename().string()) == 1);
    }
  }
}

TEST_CASE("offloading of more than checkpoints is ours alone") {
  Plan plan = plan_of("gpt2-ddp");
  plan.job.parallel.offload_activations = true;
  plan.job.parallel.recompute = Recompute::kSelective;
  for (const ExportTarget target : {ExportTarget::kSageMakerV1, ExportTarget::kSageMakerV2,
                                    ExportTarget::kDeepSpeed, ExportTarget::kAccelerate}) {
    const std::string refused = files_of(plan, target).front().second;
    INFO(refused);
    CHECK(refused.find(" does not support offload_activations with recompute: selective; nearest "
                       "supported: offload_activations with recompute: full\n") !=
          std::string::npos);
  }
}

TEST_CASE("adapters and frozen layers are the script's, or refused where the target trains") {
  Plan plan = plan_of("llama3-8b-fsdp");
  plan.job.training.lora = {.rank = 8, .alpha = 16, .quantized = QuantizedKind::kNf4};
  const std::string adapters =
      "add the adapters in the script: rank 8, alpha 16, dropout 0, beside all_linear, frozen "
      "weights nf4";
  const auto notes = [&] {
    return export_plan(plan, ExportTarget::kAccelerate, "plan.yaml").notes;
  };
  CHECK(std::ranges::count(notes(), adapters) == 1);
  CHECK(files_of(plan, ExportTarget::kTorchtitan)
            .front()
            .second.find("training.lora (the program that it starts trains all weights)") !=
        std::string::npos);
  plan.job.training.lora = {};
  plan.job.training.frozen = {"embedding", "layers.0-3"};
  CHECK(std::ranges::count(notes(), "freeze in the script: embedding, layers.0-3") == 1);
  CHECK(files_of(plan, ExportTarget::kTorchtitan)
            .front()
            .second.find("training.frozen (the program that it starts trains all weights)") !=
        std::string::npos);
}

TEST_CASE("every exported file parses again, with the same degrees") {
  int read = 0;
  for (const std::string& name : cases()) {
    const Plan plan = plan_of(name);
    ImportContext context;
    context.num_layers = plan.job.model.num_layers;
    context.hosts = plan.job.cluster.hosts;
    context.processes_per_host = plan.job.cluster.processes_per_host;
    for (const Return& pair : kReturns) {
      Exported out;
      try {
        out = export_plan(plan, pair.target, "plan.yaml");
      } catch (const ConfigError&) {
        continue;  // a refusal, which the other test reads
      }
      INFO(name, " ", name_of(pair.target), "\n", out.text);
      const JobSource source{"exported", out.text};
      CHECK(recognise(source) == pair.format);
      const auto files = import_sources({source}, std::nullopt, context);
      const Imported& back = files.front();
      imported_job_yaml(files);
      const Degrees& degrees = plan.degrees;
      const auto is = [&](std::string_view path, int64_t value) {
        CHECK(value_of(back, path, "1") == fmt::format("{}", value));
      };
      is("parallel.tensor_parallel_degree", degrees.tensor);
      is("parallel.pipeline_parallel_degree", degrees.pipeline);
      is("parallel.context_parallel_degree", degrees.context);
      is("parallel.expert_parallel_degree", degrees.expert);
      const bool shards = *plan.job.parallel.sharding != Sharding::kNone && degrees.shard > 1;
      const bool flag = value_of(back, "parallel.shard_optimizer_state", "") == "true";
      if (!flag) is("parallel.sharded_data_parallel_degree", shards ? degrees.shard : 1);
      if (flag) CHECK(degrees.shard == degrees.data());
      ++read;
    }
  }
  CHECK(read >= 12);
}

TEST_CASE("targets are known by their words") {
  CHECK(export_target_named("megatron") == ExportTarget::kMegatron);
  CHECK(!export_target_named("nemo"));
  for (int i = 0; i < kExportTargets; ++i) {
    const auto target = static_cast<ExportTarget>(i);
    CHECK(export_target_named(name_of(target)) == target);
  }
}
