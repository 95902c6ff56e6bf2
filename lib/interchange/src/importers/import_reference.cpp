#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "importers/foreign_keys.h"
#include "importers/megatron_fields.h"

// The tables of docs/interchange.md: every key that is read, from the tables that read it.
namespace smp::importers {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string what_becomes(const ForeignKey& row) {
  switch (row.use) {
    case Use::kCopied:
    case Use::kRead: return row.target.empty() ? "read" : fmt::format("`{}`", row.target);
    case Use::kIgnored: return "left out";
    case Use::kRefused:
      return row.neutral.empty() ? "refused" : fmt::format("refused unless {}", row.neutral);
  }
  return "";
}

std::string table(ForeignFormat format, const std::vector<ForeignKey>& rows,
                  const std::vector<std::string_view>& words) {
  std::string out = fmt::format("\n### --from {}: {}\n\n| key | becomes | |\n|---|---|---|\n",
                                name_of(format), title_of(format));
  const std::string_view dashes = format == ForeignFormat::kMegatron ? "--" : "";
  for (const ForeignKey& row : rows) {
    std::string meaning(row.meaning);
    if (!row.words.empty()) {
      std::string list(row.words);
      std::ranges::replace(list, ' ', ',');
      meaning += fmt::format("{}words: {}", meaning.empty() ? "" : "; ", list);
    }
    out +=
        fmt::format("| `{}{}` | {} | {} |\n", dashes, row.key, what_becomes(row), escaped(meaning));
  }
  if (words.empty()) return out;
  std::vector<std::string_view> sorted = words;
  std::ranges::sort(sorted);
  std::vector<std::string> cells;
  for (const std::string_view word : sorted) cells.push_back(fmt::format("`{}{}`", dashes, word));
  return out + fmt::format("\nThese keys are also left out, because no plan depends on them: {}.\n",
                           fmt::join(cells, ", "));
}

}  // namespace

std::string import_reference_markdown() {
  return table(ForeignFormat::kHuggingFace, huggingface_keys(), huggingface_words()) +
         table(ForeignFormat::kSmpV1, smp_v1_keys(), {}) +
         table(ForeignFormat::kSmpV2, smp_v2_keys(), {}) +
         table(ForeignFormat::kDeepSpeed, deepspeed_keys(), {}) +
         table(ForeignFormat::kMegatron, megatron_keys(), megatron_words()) +
         table(ForeignFormat::kAccelerate, accelerate_keys(), {}) +
         table(ForeignFormat::kNemo, nemo_keys(), megatron_field_words()) +
         table(ForeignFormat::kTorchTitan, torchtitan_keys(), {}) +
         table(ForeignFormat::kLlamaFactory, llama_factory_keys(), {}) +
         table(ForeignFormat::kAxolotl, axolotl_keys(), {}) +
         table(ForeignFormat::kAutomodel, automodel_keys(), {});
}

}  // namespace smp::importers
