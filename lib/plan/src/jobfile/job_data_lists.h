#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"
#include "smp/plan/text/yaml_tree.h"

// The keys training.data.sources and training.evaluation.sets: lists of maps. Pure; any thread.
namespace smp::jobfile {

// Stores the value of `node`. Returns the problem (words that follow the key), or "".
std::string read_sources(const text::YamlNode& node, std::vector<MixtureSource>& sources);
std::string read_sets(const text::YamlNode& node, std::vector<EvaluationSet>& sets);

// YAML on one line: "[{path: wiki, weight: 0.3}, ...]"; "[]" where there are none.
std::string sources_text(const std::vector<MixtureSource>& sources);
std::string sets_text(const std::vector<EvaluationSet>& sets);

}  // namespace smp::jobfile
