#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "importers/foreign_keys.h"
#include "importers/smp_dictionary.h"
#include "pyscript/python_script.h"
#include "smp/plan/jobfile/cluster_catalog.h"

// A script, or part of one, that starts training on SageMaker: the estimator of the SDK v2
// (PyTorch(instance_type=..., instance_count=..., distribution=...)), the ModelTrainer of v3
// (compute=Compute(...), distributed=Torchrun(smp=SMP(...))), or their dictionaries alone.
namespace smp::importers {
namespace {

using Kind = pyscript::PythonValue::Kind;

constexpr std::array<std::string_view, 1> kUnread = {"custom_mpi_options"};  // how mpirun is called

// The job's settings in a script, wherever they stand.
struct SageMakerJob {
  const pyscript::PythonValue* distribution = nullptr;
  const pyscript::PythonValue* smp = nullptr;  // SMP(...) of the SDK v3
  const pyscript::PythonValue* mpi = nullptr;  // beside a dictionary that has none
  const pyscript::PythonValue* instance_type = nullptr;
  const pyscript::PythonValue* instance_count = nullptr;
  const pyscript::PythonValue* processes = nullptr;  // of a host, as Torchrun(...) says it
  const pyscript::PythonValue* hyperparameters = nullptr;
};

// `x = {...},` cut out of a call is no tuple that anyone means.
const pyscript::PythonValue* single(const pyscript::PythonValue* value) {
  const bool alone =
      value != nullptr && value->kind == Kind::kList && value->is_tuple && value->items.size() == 1;
  return alone ? value->items[0] : value;
}

bool is_map_with(const pyscript::PythonValue* value, std::initializer_list<std::string_view> keys) {
  return value != nullptr && value->kind == Kind::kMap &&
         std::ranges::any_of(keys, [&](const auto key) { return value->find(key) != nullptr; });
}

std::string why_unread(const pyscript::PythonValue& value) {
  if (value.kind == Kind::kUnknown) return value.text;
  return value.kind == Kind::kCall ? value.text + "(...), which smp does not evaluate"
                                   : "not a value that smp reads";
}

text::YamlNode map_of(text::Place place, std::vector<text::YamlEntry> entries) {
  text::YamlNode node;
  node.kind = text::YamlNode::Kind::kMap;
  node.place = place;
  node.entries = std::move(entries);
  return node;
}

text::YamlNode word(text::Place place, std::string text) {
  text::YamlNode node;
  node.kind = text::YamlNode::Kind::kScalar;
  node.place = place;
  node.text = std::move(text);
  return node;
}

class SageMakerScript {
 public:
  SageMakerScript(const pyscript::PythonScript& script, int source, text::Diagnostics& diagnostics)
      : script_(script), source_(source), diagnostics_(diagnostics) {}

  // Nothing, and a report, where the script has no job that can be read.
  std::optional<SageMakerJob> find() {
    SageMakerJob job;
    if (const auto estimators = calls_with({"distribution", "distributed"}); !estimators.empty()) {
      if (estimators.size() > 1) {
        diagnostics_.error(
            estimators[1]->place,
            fmt::format("a second job; the first is {}() on line {}: remove one from the file",
                        estimators[0]->text, estimators[0]->place.line));
        return std::nullopt;
      }
      read_estimator(*estimators[0], job);
    } else {
      read_names(job);
    }
    if (job.distribution != nullptr || job.smp != nullptr) return job;
    if (!diagnostics_.any()) report_none();
    return std::nullopt;
  }

 private:
  std::vector<const pyscript::PythonValue*> calls_with(
      std::initializer_list<std::string_view> keys) const {
    std::vector<const pyscript::PythonValue*> found;
    for (const pyscript::PythonValue* call : script_.calls) {
      const bool has =
          std::ranges::any_of(keys, [&](const auto key) { return call->find(key) != nullptr; });
      if (has && call->kind == Kind::kCall) found.push_back(call);
    }
    return found;
  }
  const pyscript::PythonValue* named(const std::string& name) const {
    const auto found = script_.names.find(name);
    return found != script_.names.end() ? single(found->second) : nullptr;
  }
  const pyscript::PythonValue* call_of(const char* name) const {
    const auto found =
        std::ranges::find_if(script_.calls, [&](const auto* call) { return call->text == name; });
    return found != script_.calls.end() ? *found : nullptr;
  }

  void read_estimator(const pyscript::PythonValue& call, SageMakerJob& job) {
    if (const pyscript::PythonValue* others = call.find("**")) {
      diagnostics_.error(others->place,
                         fmt::format("arguments of {}(): {}: write the arguments instead",
                                     call.text, why_unread(*others)));
    }
    if (const pyscript::PythonValue* groups = call.find("instance_groups")) {
      diagnostics_.error(groups->place,
                         "instance_groups: different kinds of hosts are not supported: write "
                         "instance_type and instance_count");
    }
    job.distribution = call.find("distribution");
    read_hosts(call, job);
    job.hyperparameters = call.find("hyperparameters");
    if (const pyscript::PythonValue* distributed = call.find("distributed"))
      read_torchrun(*distributed, job);
    if (const pyscript::PythonValue* compute = call.find("compute")) {
      if (compute->kind == Kind::kCall) {
        read_hosts(*compute, job);
      } else {
        refuse("compute", *compute);
      }
    }
  }
  void read_hosts(const pyscript::PythonValue& call, SageMakerJob& job) {
    if (const pyscript::PythonValue* type = call.find("instance_type")) job.instance_type = type;
    if (const pyscript::PythonValue* count = call.find("instance_count"))
      job.instance_count = count;
  }

  void refuse(std::string_view name, const pyscript::PythonValue& value) {
    diagnostics_.error(value.place,
                       fmt::format("{}: {}: write the value instead", name, why_unread(value)));
  }

  void read_torchrun(const pyscript::PythonValue& value, SageMakerJob& job) {
    if (value.kind != Kind::kCall) return refuse("distributed", value);
    job.processes = value.find("process_count_per_node");
    job.smp = value.find("smp");
    if (job.smp == nullptr) {
      diagnostics_.error(
          value.place,
          fmt::format("{}() has no smp=SMP(...), so there are no degrees to import", value.text));
    } else if (job.smp->kind != Kind::kCall) {
      refuse("smp", *job.smp);
      job.smp = nullptr;
    }
  }

  // Without an estimator: names as in AWS's own pages, or whatever holds such a dictionary.
  void read_names(SageMakerJob& job) {
    job.instance_type = named("instance_type");
    job.instance_count = named("instance_count");
    job.hyperparameters = named("hyperparameters");
    job.distribution = named("distribution");
    if (job.distribution != nullptr) return;
    if (const pyscript::PythonValue* torchrun = call_of("Torchrun"))
      return read_torchrun(*torchrun, job);
    job.smp = call_of("SMP");
    if (job.smp != nullptr) return;
    std::vector<const pyscript::PythonValue*> values;
    for (const auto& [name, value] : script_.names) values.push_back(single(value));
    values.push_back(single(script_.last));
    for (const pyscript::PythonValue* value : values) {
      const bool found = is_map_with(value, {"smdistributed", "modelparallel"}) ||
                         (is_map_with(value, {"parameters"}) && is_map_with(value, {"enabled"}));
      if (found && job.distribution != nullptr && job.distribution != value) {
        diagnostics_.error(value->place,
                           fmt::format("a second dictionary; the first is on line {}: remove one "
                                       "from the file, or name one `distribution`",
                                       job.distribution->place.line));
      }
      if (found) job.distribution = value;
      if (is_map_with(value, {"processes_per_host"})) job.mpi = value;
    }
    if (job.distribution == nullptr && script_.last != nullptr &&
        single(script_.last)->kind == Kind::kMap) {
      job.distribution = single(script_.last);  // the parameters alone
    }
  }

  void report_none() {
    constexpr std::array<std::string_view, 7> kMakers = {
        "PyTorch", "HuggingFace", "TensorFlow", "Estimator", "ModelTrainer", "Torchrun", "SMP"};
    for (const pyscript::UnreadCall& call : script_.unread) {
      if (std::ranges::count(kMakers, call.name) == 0) continue;
      diagnostics_.error(call.place, fmt::format("{}() is inside '{}', whose lines are not read: "
                                                 "write the call at the top level of the file",
                                                 call.name, call.block));
      return;
    }
    diagnostics_.error({source_, 1, 1},
                       "the file has no SageMaker job: expected an estimator with "
                       "distribution=..., or a dictionary `distribution`");
  }

  const pyscript::PythonScript& script_;
  int source_;
  text::Diagnostics& diagnostics_;
};

// The document that the readers of SMP's dictionaries take.
text::YamlNode dictionary_of(const SageMakerJob& job, text::Diagnostics& diagnostics) {
  if (job.smp != nullptr) {
    pyscript::PythonValue parameters = *job.smp;
    parameters.kind = Kind::kMap;
    const text::Place place = job.smp->place;
    text::YamlNode modelparallel = map_of(
        place,
        {{"enabled", place, word(place, "true")},
         {"parameters", place, pyscript::document_of(parameters, "smp", kUnread, diagnostics)}});
    return map_of(place, {{"torch_distributed", place,
                           map_of(place, {{"enabled", place, word(place, "true")}})},
                          {"smdistributed", place,
                           map_of(place, {{"modelparallel", place, std::move(modelparallel)}})}});
  }
  const pyscript::PythonValue& value = *job.distribution;
  text::YamlNode document = pyscript::document_of(value, "distribution", kUnread, diagnostics);
  const bool is_options = is_map_with(&value, {"parameters"}) && is_map_with(&value, {"enabled"});
  if (is_options) {
    document = map_of(value.place, {{"modelparallel", value.place, std::move(document)}});
  }
  if (job.mpi != nullptr && document.kind == text::YamlNode::Kind::kMap &&
      document.find("mpi") == nullptr && job.mpi != job.distribution) {
    document.entries.push_back(
        {"mpi", job.mpi->place, pyscript::document_of(*job.mpi, "mpi", kUnread, diagnostics)});
  }
  return document;
}

// Says so where the dictionary enables something else.
void require_modelparallel(const text::YamlNode& document, text::Diagnostics& diagnostics) {
  if (document.reported || document.kind != text::YamlNode::Kind::kMap) return;
  const text::YamlEntry* around = document.find("smdistributed");
  const text::YamlNode& inner = around != nullptr ? around->value : document;
  const bool wrapped = around != nullptr || document.find("torch_distributed") != nullptr ||
                       document.find("pytorchddp") != nullptr || document.find("mpi") != nullptr;
  if (!wrapped || inner.reported || inner.find("modelparallel") != nullptr) return;
  diagnostics.error(inner.place,
                    "the distribution has no modelparallel, so there are no degrees to import: in "
                    "a job file without the section parallel, the planner chooses the degrees");
}

std::optional<int64_t> count_of(const pyscript::PythonValue* value, const char* name,
                                text::Diagnostics& diagnostics) {
  if (value == nullptr) return std::nullopt;
  const text::YamlNode node = pyscript::document_of(*single(value), name, {}, diagnostics);
  if (node.reported) return std::nullopt;
  const auto whole = node.kind == text::YamlNode::Kind::kScalar && !node.quoted
                         ? whole_value(node.text)
                         : std::nullopt;
  if (whole && *whole >= 1) return whole;
  diagnostics.error(node.place, fmt::format("{} must be a whole number of at least 1, not {}", name,
                                            text::described(node)));
  return std::nullopt;
}

// The catalogue's cluster of an instance type, or nullptr and a warning.
const jobfile::NamedCluster* cluster_of(const SageMakerJob& job, Imported& out,
                                        text::Diagnostics& diagnostics) {
  if (job.instance_type == nullptr) {
    out.notes.push_back("instance_type is missing: give --cluster to smp-plan");
    return nullptr;
  }
  const text::YamlNode node =
      pyscript::document_of(*single(job.instance_type), "instance_type", {}, diagnostics);
  if (node.reported) return nullptr;
  if (node.kind != text::YamlNode::Kind::kScalar || !node.quoted) {
    diagnostics.error(node.place,
                      fmt::format("instance_type must be a string, as \"ml.p4d.24xlarge\", not {}",
                                  text::described(node)));
    return nullptr;
  }
  const std::string name = node.text.starts_with("ml.") ? node.text.substr(3) : node.text;
  const jobfile::NamedCluster* cluster = jobfile::find_cluster(name);
  if (cluster == nullptr) {
    out.warnings.push_back(fmt::format(
        "{}:{}:{}: instance_type {}: smp has no cluster file of this name: describe the hosts in "
        "the job's cluster section, or give --cluster to smp-plan",
        out.file, node.place.line, node.place.column, text::quoted_for_message(node.text)));
  }
  return cluster;
}

// Its keys, but how many hosts and processes there are.
std::optional<int64_t> set_cluster(const jobfile::NamedCluster& cluster, const std::string& origin,
                                   Imported& out) {
  text::Diagnostics quiet;
  const text::YamlTree tree =
      text::parse_yaml(cluster.text, quiet.add_source("cluster", std::string(cluster.text)), quiet);
  std::optional<int64_t> processes;
  const text::YamlEntry* section = tree.root.find("cluster");
  if (section == nullptr) return processes;
  for (const text::YamlEntry& entry : section->value.entries) {
    if (entry.key == "processes_per_host") processes = whole_value(entry.value.text);
    const bool counts = entry.key == "hosts" || entry.key == "processes_per_host";
    if (counts || entry.value.kind != text::YamlNode::Kind::kScalar) continue;
    out.keys.push_back({"cluster." + entry.key, entry.value.text, origin});
  }
  return processes;
}

void note_hyperparameters(const SageMakerJob& job, Imported& out) {
  const pyscript::PythonValue* value = job.hyperparameters;
  if (value == nullptr || value->kind != Kind::kMap || value->entries.empty()) return;
  std::string names;
  for (const pyscript::PythonEntry& entry : value->entries) {
    names += (names.empty() ? "" : ", ") + entry.key;
  }
  out.notes.push_back(
      fmt::format("hyperparameters ({}) are not imported, because only the script reads them: set "
                  "batch, steps, precision and sequence length in the section training",
                  names));
}

}  // namespace

void read_sagemaker(const jobfile::JobSource& source, int number, text::Diagnostics& diagnostics,
                    const ImportContext& context, Imported& out) {
  const pyscript::PythonScript script = pyscript::read_python(source.text, number, diagnostics);
  if (diagnostics.any()) return;
  const auto job = SageMakerScript(script, number, diagnostics).find();
  if (!job) return;
  const text::YamlNode document = dictionary_of(*job, diagnostics);
  require_modelparallel(document, diagnostics);
  ImportContext known = context;
  const auto hosts = count_of(job->instance_count, "instance_count", diagnostics);
  const auto processes = count_of(job->processes, "process_count_per_node", diagnostics);
  const jobfile::NamedCluster* cluster = cluster_of(*job, out, diagnostics);
  if (diagnostics.any()) return;
  if (cluster != nullptr) {
    const std::string type = single(job->instance_type)->text;
    const auto of_cluster = set_cluster(*cluster, "instance_type = " + type, out);
    if (!known.processes_per_host) known.processes_per_host = of_cluster;
  }
  if (hosts) {
    known.hosts = hosts;
    out.keys.push_back({"cluster.hosts", fmt::format("{}", *hosts), "instance_count"});
  }
  if (processes) {
    known.processes_per_host = processes;
    out.keys.push_back(
        {"cluster.processes_per_host", fmt::format("{}", *processes), "process_count_per_node"});
  }
  const ForeignFormat version = smp_version(document, source.path);
  out.format = version;  // whose dictionary messages name
  (version == ForeignFormat::kSmpV1 ? read_smp_v1 : read_smp_v2)(document, diagnostics, known, out);
  out.format = ForeignFormat::kSageMaker;
  const bool counted = out.find("cluster.processes_per_host") != nullptr;
  if (cluster != nullptr && !counted && known.processes_per_host) {
    out.keys.push_back({"cluster.processes_per_host", fmt::format("{}", *known.processes_per_host),
                        "instance_type = " + single(job->instance_type)->text});
  }
  note_hyperparameters(*job, out);
}

}  // namespace smp::importers
