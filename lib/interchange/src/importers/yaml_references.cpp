#include "importers/yaml_references.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "importers/foreign_keys.h"

namespace smp::importers {
namespace {

// The node at "model.data.seq_length"; null if there is none.
const text::YamlNode* node_at(const text::YamlNode& root, std::string_view path) {
  const text::YamlNode* node = &root;
  while (node != nullptr && !path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    const text::YamlEntry* entry = node->find(path.substr(0, end));
    node = entry != nullptr ? &entry->value : nullptr;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return node;
}

// OmegaConf's references: "${model.encoder_seq_length}", and "${.name}" to a neighbour. Others
// stay.
void follow(const text::YamlNode& root, text::YamlNode& node, const std::string& prefix) {
  constexpr int kMostSteps = 8;
  for (text::YamlEntry& entry : node.entries) {
    const std::string path = prefix + entry.key;
    follow(root, entry.value, path + ".");
    for (int step = 0; step < kMostSteps; ++step) {
      const std::string& text = entry.value.text;
      if (entry.value.kind != NodeKind::kScalar || !text.starts_with("${") || !text.ends_with('}'))
        break;
      std::string to = text.substr(2, text.size() - 3);
      if (to.starts_with('.')) to = prefix + to.substr(1);
      const text::YamlNode* found = node_at(root, to);
      if (found == nullptr || found->kind != NodeKind::kScalar) break;
      const text::Place place = entry.value.place;
      entry.value = *found;
      entry.value.place = place;
    }
  }
}

}  // namespace

void follow_references(text::YamlNode& root) { follow(text::YamlNode(root), root, ""); }

}  // namespace smp::importers
