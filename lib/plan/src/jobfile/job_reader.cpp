#include "smp/plan/jobfile/job_reader.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "jobfile/job_builder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/model_catalog.h"

namespace smp::jobfile {

namespace {

// configs/jobs/quickstart.yaml -> quickstart
std::string job_name_of(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '-';
  }
  name.erase(0, std::min(name.find_first_not_of(".-"), name.size()));
  return name.empty() ? "job" : name;
}

// `cluster: p5.48xlarge` stands for the section of that name's file.
void put_named_cluster(text::YamlNode& root, text::Diagnostics& diagnostics) {
  for (text::YamlEntry& entry : root.entries) {
    text::YamlNode& value = entry.value;
    if (entry.key != "cluster" || value.kind != text::YamlNode::Kind::kScalar || value.reported)
      continue;
    if (!std::isalpha(static_cast<unsigned char>(value.text.empty() ? '0' : value.text[0]))) return;
    const NamedCluster* known = find_cluster(value.text);
    if (known == nullptr) {
      diagnostics.error(value.place, unknown_cluster(value.text));
      value.reported = true;
      return;
    }
    const int number =
        diagnostics.add_source(fmt::format("cluster {}", known->name), std::string(known->text));
    const text::YamlTree tree = text::parse_yaml(known->text, number, diagnostics);
    if (const text::YamlEntry* section = tree.root.find("cluster")) value = section->value;
    return;
  }
}

// `model: llama3-8b` stands for the file of that name, which is read before `root`: the keys of
// `root` override its own.
void read_named_model(text::YamlTree& tree, text::Diagnostics& diagnostics, JobBuilder& builder) {
  text::YamlNode& root = tree.root;
  for (size_t i = 0; i < root.entries.size(); ++i) {
    const text::YamlNode& value = root.entries[i].value;
    if (root.entries[i].key != "model" || value.kind != text::YamlNode::Kind::kScalar) continue;
    if (value.reported || value.text.empty() ||
        !std::isalpha(static_cast<unsigned char>(value.text[0]))) {
      return;
    }
    const NamedModel* known = find_model(value.text);
    if (known == nullptr) {
      diagnostics.error(value.place, unknown_model(value.text));
      root.entries[i].value.reported = true;
      tree.complete = false;  // the sizes are not missing, but unknown
      return;
    }
    builder.forget("model");
    const int number =
        diagnostics.add_source(fmt::format("model {}", known->name), std::string(known->text));
    const text::YamlTree named = text::parse_yaml(known->text, number, diagnostics);
    builder.add(named.root, named.complete);
    root.entries.erase(root.entries.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

// A relative path of a framework file starts in the job file's folder.
void put_framework_path(text::YamlNode& root, const std::string& job_path) {
  for (text::YamlEntry& section : root.entries) {
    if (section.key != "parallel") continue;
    for (text::YamlEntry& entry : section.value.entries) {
      std::string& name = entry.value.text;
      if (entry.key != "framework" || !framework::is_framework_path(name)) continue;
      const std::filesystem::path path = name;
      if (path.is_relative()) {
        name = (std::filesystem::path(job_path).parent_path() / path).lexically_normal().string();
      }
    }
  }
}

}  // namespace

JobSpec read_job(const std::vector<JobSource>& sources, const std::vector<std::string>& overrides) {
  text::Diagnostics diagnostics;
  JobBuilder builder(diagnostics, JobBuilder::FrameworkFile::kRead);
  for (const JobSource& source : sources) {
    const int number = diagnostics.add_source(source.path, source.text);
    text::YamlTree tree = text::parse_yaml(source.text, number, diagnostics);
    put_named_cluster(tree.root, diagnostics);
    if (source.replaces.empty()) read_named_model(tree, diagnostics, builder);
    put_framework_path(tree.root, source.path);
    if (!source.replaces.empty()) {
      builder.forget(source.replaces);
      if (tree.complete && tree.root.find(source.replaces) == nullptr) {
        diagnostics.error({number, 1, 1},
                          fmt::format("this file has no section '{}'", source.replaces));
      }
    }
    builder.add(tree.root, tree.complete);
  }
  if (sources.empty()) throw ConfigError("no job file was given");
  for (const std::string& text : overrides) builder.add_override(text);
  JobSpec spec = builder.finish(job_name_of(sources.front().path));
  diagnostics.raise_if_any();
  return spec;
}

}  // namespace smp::jobfile
