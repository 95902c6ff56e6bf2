#pragma once

#include <string>
#include <vector>

#include "smp/plan/spec/operator_spec.h"
#include "smp/plan/text/yaml_tree.h"

// model.layers as a job file writes it: a list of names (relu) and maps ({type: conv2d, out: 64,
// kernel: 11}). Pure; any thread.
namespace smp::jobfile {

// A wrong entry, and its problem (words that follow the key).
struct LayerListProblem {
  const text::YamlNode* where = nullptr;
  std::string words;
};
// All problems, in the order of the list; a value that is no list has one.
std::vector<LayerListProblem> layer_list_problems(const text::YamlNode& node);

// Returns the first problem, or ""; `where` is then the entry in question.
std::string read_layer_list(const text::YamlNode& node, std::vector<OperatorSpec>& operators,
                            const text::YamlNode*& where);

}  // namespace smp::jobfile
