#pragma once

#include <string>
#include <vector>

#include "smp/plan/operator_spec.h"
#include "smp/plan/yaml_tree.h"

// model.layers as a job file writes it: a list of names (relu) and maps ({type: conv2d, out: 64,
// kernel: 11}). Pure; any thread.
namespace smp {

// An entry that is wrong, and how (words that follow the key).
struct LayerListProblem {
  const YamlNode* where = nullptr;
  std::string words;
};
// All of them, in the order of the list; of no list one.
std::vector<LayerListProblem> layer_list_problems(const YamlNode& node);

// Returns the first problem, or ""; `where` is then the entry in question.
std::string read_layer_list(const YamlNode& node, std::vector<OperatorSpec>& operators,
                            const YamlNode*& where);

}  // namespace smp
