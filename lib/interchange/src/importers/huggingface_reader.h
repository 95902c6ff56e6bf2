#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "huggingface/huggingface_types.h"
#include "importers/foreign_keys.h"

namespace smp::importers {

// A config.json of one type: its keys, and how they set keys of the model. The origin of a value is
// its key, the type's default where the key is absent, or the type where it has no such key ("").
// One thread at a time.
struct HuggingFaceReader {
  const huggingface::HuggingFaceType& type;
  ForeignReader& keys;

  // Sets "model." + `path`.
  void set(std::string_view key, std::string_view path, int64_t value);
  void set_word(std::string_view key, std::string_view path, std::string_view value);
  std::string origin(std::string_view key) const;

  int64_t positions() const;  // that the file says, or the type's default; 0 = no limit
};

}  // namespace smp::importers
