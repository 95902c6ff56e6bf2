#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "importers/foreign_keys.h"

// Low-rank adapters of a foreign file as keys of `training.lora`.
namespace smp::importers {

// A value as a job file writes it, and what stood in the foreign file. An empty value is left out.
struct AdapterValue {
  std::string value;
  std::string origin;
};

struct Adapters {
  text::Place place;
  AdapterValue rank;
  AdapterValue alpha;
  AdapterValue dropout;
  AdapterValue quantized;            // nf4, nf4_double, int8
  std::vector<std::string> modules;  // names in the foreign framework; empty = each linear layer
  std::string modules_origin;
};

// Adds the keys of `training.lora` to `out`, and a warning for each module without a priced adapter
// and for one of some layers only. Returns what is wrong if no module can have one, else "".
std::string set_adapters(const Adapters& adapters, Imported& out);

// Whether a word names low-rank adapters: "lora", "qlora", "LoRA", "CanonicalLoRA", "DoRA",
// "PeftConfig" (Automodel's).
bool is_low_rank(std::string_view kind);

// Warns that other adapters, or partly frozen weights, are priced as full fine-tuning. `kind` is
// the file's word, at `place`.
void warn_adapter(std::string_view kind, text::Place place, Imported& out);

// The items of a list, or a text alone.
std::vector<std::string> words_of(const text::YamlNode& node);

}  // namespace smp::importers
