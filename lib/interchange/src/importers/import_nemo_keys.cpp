#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <deque>

#include "importers/foreign_keys.h"
#include "importers/megatron_fields.h"

// The table of docs/interchange.md for NeMo, Megatron Bridge and Megatron-LM's arguments: each
// field with what its flag becomes. The reader itself is megatron_fields.cpp.
namespace smp::importers {
namespace {

// The table of the pages: the fields of Megatron, with what their flags become.
std::vector<ForeignKey> field_rows() {
  static std::deque<std::string> texts;
  const auto keep = [&](std::string text) {
    return std::string_view(texts.emplace_back(std::move(text)));
  };
  const auto as_field = [&](std::string_view meaning) {
    std::string out;
    for (size_t i = 0; i < meaning.size(); ++i) {
      if (meaning.substr(i, 2) == "--") {
        for (i += 2;
             i < meaning.size() &&
             (std::islower(static_cast<unsigned char>(meaning[i])) != 0 || meaning[i] == '-');
             ++i) {
          out += meaning[i] == '-' ? '_' : meaning[i];
        }
      }
      if (i < meaning.size()) out += meaning[i];
    }
    return keep(std::move(out));
  };
  std::vector<ForeignKey> rows;
  const auto add = [&](std::string_view field) {
    const MegatronField row = *megatron_field(field);
    const auto flag = std::ranges::find(megatron_keys(), row.flag, &ForeignKey::key);
    ForeignKey key{field, Form::kAny, Use::kRead, row.target, row.meaning, {}, {}};
    if (row.use == FieldUse::kIgnored) {
      key.use = Use::kIgnored;
      key.meaning = "no plan depends on it";
    } else if (row.use == FieldUse::kRefused) {
      key.use = Use::kRefused;
      key.neutral = row.neutral.substr(0, row.neutral.find(' '));
    } else if (row.use == FieldUse::kWarned) {
      const std::string_view but = row.neutral.substr(0, row.neutral.find(' '));
      key.meaning =
          keep(fmt::format("a warning{}{}: {}", but.empty() ? "" : " unless ", but, row.meaning));
    } else if (flag != megatron_keys().end()) {
      key = *flag;
      key.key = field;
      if (key.use == Use::kCopied) key.use = Use::kRead;
      key.meaning = as_field(row.use == FieldUse::kFalse
                                 ? keep(fmt::format("false is the flag --{}", row.flag))
                                 : key.meaning);
    }
    rows.push_back(key);
  };
  for (const ForeignKey& flag : megatron_keys()) {
    std::string field(flag.key);
    std::ranges::replace(field, '-', '_');
    const bool listed = std::ranges::count(megatron_fields(), field, &MegatronField::field) > 0;
    if (!listed && field != "nnodes" && field != "nproc_per_node") add(keep(std::move(field)));
  }
  for (const MegatronField& row : megatron_fields()) add(row.field);
  return rows;
}

}  // namespace

const std::vector<ForeignKey>& nemo_keys() {
  static const std::vector<ForeignKey> kKeys = field_rows();
  return kKeys;
}

}  // namespace smp::importers
