#include <fmt/format.h>

#include <algorithm>

#include "importers/megatron_arguments.h"
#include "importers/megatron_fields.h"
#include "importers/megatron_line.h"

// Megatron-LM's arguments as YAML or as a run prints them, as keys of a job file. Sources:
// megatron/training/yaml_arguments.py; megatron/training/arguments.py, _print_args.
namespace smp::importers {
namespace {

class ArgumentFields {
 public:
  ArgumentFields(text::Diagnostics& diagnostics, const ImportContext& context, Imported& out)
      : flags_(megatron_keys(), diagnostics, out), fields_(flags_, out), context_(context) {}

  void take(const std::string& name, const std::string& shown, text::Place place,
            const text::YamlNode& value) {
    if (value.kind == NodeKind::kScalar && value.text.find("${") != value.text.npos) {
      const auto row = megatron_field(name);
      if (!row || row->use != FieldUse::kIgnored) {
        flags_.error_at(value.place, fmt::format("{} is {}, which the environment sets: write the "
                                                 "value instead",
                                                 shown, value.text));
        return;
      }
    }
    if (!fields_.take(name, shown, place, value)) {
      flags_.report_unknown(shown, place, UnknownKeys::kWarning);
    }
  }

  void finish() {
    const bool sizes = fields_.has("num_layers") && fields_.has("hidden_size");
    fields_.finish(context_);
    MegatronLine(flags_, context_, sizes || !context_.num_layers).read();
  }

 private:
  ForeignReader flags_;
  MegatronFields fields_;
  const ImportContext& context_;
};

bool is_section(const text::YamlEntry& entry) {
  return (entry.key == "language_model" || entry.key == "model_parallel") &&
         entry.value.kind == NodeKind::kMap;
}

}  // namespace

bool is_megatron_yaml(const text::YamlNode& root) {
  return root.kind == NodeKind::kMap && std::ranges::count_if(root.entries, is_section) == 2;
}

void read_megatron_yaml(const text::YamlNode& root, text::Diagnostics& diagnostics,
                        const ImportContext& context, Imported& out) {
  ArgumentFields fields(diagnostics, context, out);
  for (const text::YamlEntry& entry : root.entries) {
    if (!is_section(entry)) {
      fields.take(entry.key, entry.key, entry.place, entry.value);
      continue;
    }
    for (const text::YamlEntry& inner : entry.value.entries) {
      fields.take(inner.key, fmt::format("{}.{}", entry.key, inner.key), inner.place, inner.value);
    }
  }
  fields.finish();
}

// "  hidden_size ..................................... 4096"
void read_printed_megatron(std::string_view text, int source, text::Diagnostics& diagnostics,
                           const ImportContext& context, Imported& out) {
  ArgumentFields fields(diagnostics, context, out);
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t begin = row.find_first_not_of(" \t");
    const size_t dots = row.find(" ..", std::min(begin, row.size()));
    if (begin == row.npos || dots == row.npos) continue;
    const std::string name(row.substr(begin, dots - begin));
    if (name.find_first_of(" :[]") != name.npos) continue;
    const size_t last = std::min(row.find_first_not_of('.', dots + 1), row.size());
    const size_t from = std::min(row.find_first_not_of(' ', last), row.size());
    text::YamlNode value;
    value.kind = row.substr(from) == "None" ? NodeKind::kNull : NodeKind::kScalar;
    value.place = {source, line, static_cast<int>(from) + 1};
    value.text = std::string(row.substr(from));
    fields.take(name, name, {source, line, static_cast<int>(begin) + 1}, value);
  }
  fields.finish();
}

}  // namespace smp::importers
