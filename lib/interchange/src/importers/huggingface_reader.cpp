#include "importers/huggingface_reader.h"

#include <fmt/format.h>

namespace smp::importers {

void HuggingFaceReader::set(std::string_view key, std::string_view path, int64_t value) {
  set_word(key, path, fmt::format("{}", value));
}

void HuggingFaceReader::set_word(std::string_view key, std::string_view path,
                                 std::string_view value) {
  keys.set(fmt::format("model.{}", path), std::string(value), origin(key));
}

std::string HuggingFaceReader::origin(std::string_view key) const {
  if (key.empty()) return std::string(type.name);
  if (!keys.has(key)) return fmt::format("{}, default of {}", key, type.name);
  return std::string(key);
}

int64_t HuggingFaceReader::positions() const {
  return keys.whole(type.keys.positions).value_or(type.sizes.positions);
}

}  // namespace smp::importers
