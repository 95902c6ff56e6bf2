#include "importers/huggingface_windows.h"

#include <fmt/format.h>

#include <algorithm>

namespace smp::importers {
namespace {

// How many layers have a window: those that layer_types lists, or those from max_window_layers
// on.
int64_t windowed_layers(HuggingFaceReader reader, bool by_type, int64_t layers) {
  constexpr int64_t kFirstByDefault = 28;  // Qwen2Config, Qwen3Config
  const int64_t first = reader.keys.whole("max_window_layers").value_or(kFirstByDefault);
  const text::YamlNode* const kinds = reader.keys.node("layer_types");
  const int64_t period = reader.type.defaults.full_attention_period;
  if (kinds == nullptr && period > 0) return layers - layers / period;
  if (kinds == nullptr) return by_type ? layers : std::clamp<int64_t>(layers - first, 0, layers);
  int64_t windowed = 0;
  for (const text::YamlNode& kind : kinds->items) {
    if (kind.text != "full_attention" && kind.text != "sliding_attention") {
      reader.keys.error(
          "layer_types",
          fmt::format("layer_types has {}; expected full_attention or sliding_attention",
                      text::described(kind)));
      return 0;
    }
    windowed += kind.text == "sliding_attention";
  }
  return windowed;
}

// Every n-th layer sees all keys; 0: layer_types says otherwise.
int64_t full_attention_period(HuggingFaceReader reader) {
  const text::YamlNode* const kinds = reader.keys.node("layer_types");
  if (kinds == nullptr) return reader.type.defaults.full_attention_period;
  int64_t period = 0;
  for (size_t i = 0; i < kinds->items.size(); ++i) {
    const auto place = static_cast<int64_t>(i) + 1;
    const bool full = kinds->items[i].text == "full_attention";
    if (full && period == 0) period = place;
    if (full != (period > 0 && place % period == 0)) return 0;
  }
  return period;
}

}  // namespace

void read_huggingface_windows(HuggingFaceReader reader) {
  const bool by_type = reader.type.defaults.window_in_all_layers;
  const bool used = reader.keys.boolean("use_sliding_window").value_or(false) || by_type;
  auto window = reader.keys.whole("sliding_window");
  if (window == 0) {  // what transformers 5 writes where there is none
    if (used) {
      reader.keys.error("sliding_window",
                        "sliding_window must be a whole number of at least 1, not '0'");
    }
    return;
  }
  // MistralConfig has a window if the key is absent, and none if it is null.
  if (reader.type.defaults.window > 0 && !window && !reader.keys.is_null("sliding_window") &&
      reader.positions() > reader.type.defaults.window) {
    window = reader.type.defaults.window;
  }
  const int64_t layers =
      reader.keys.whole(reader.type.keys.layers).value_or(reader.type.sizes.layers);
  const int64_t windowed = windowed_layers(reader, by_type, layers);
  if (!window || !used || windowed == 0) return;
  reader.set("sliding_window", "sliding_window", *window);
  if (windowed == layers || *window >= reader.positions()) return;
  if (reader.type.defaults.full_attention_period > 0) {
    const int64_t period = full_attention_period(reader);
    if (period > 0) return reader.set("layer_types", "full_attention_period", period);
    reader.keys.error("layer_types",
                      "layer_types must have full_attention in every n-th layer, as in [sliding, "
                      "full, sliding, full]");
    return;
  }
  reader.keys.error(reader.keys.has("layer_types")         ? "layer_types"
                    : reader.keys.has("max_window_layers") ? "max_window_layers"
                                                           : "use_sliding_window",
                    fmt::format("{} of {} layers have a window, but in smp all layers have one, or "
                                "none: to remove the windows, set use_sliding_window: false",
                                windowed, layers));
}

}  // namespace smp::importers
