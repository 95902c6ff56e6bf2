#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "importers/megatron_line.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/printable.h"

// The data of a Megatron-LM command line. Sources: megatron/training/arguments.py, _add_data_args
// and its default split; megatron/core/datasets/utils.py, get_blend_from_list;
// megatron/core/datasets/blended_megatron_dataset_config.py, parse_and_normalize_split.
namespace smp::importers {
namespace {

constexpr std::string_view kDefaultSplit = "969, 30, 1";
constexpr int64_t kDefaultEvaluationSteps = 100;  // --eval-iters
constexpr int64_t kDefaultEvaluationInterval = 1000;
constexpr int64_t kMostShare = 1'000'000'000;  // of training.data.split

// A JSON string is a YAML one. The text is UTF-8.
std::string path_text(const std::string& text) { return text::Json(text).dump(); }

bool is_utf8(const std::string& text) {
  try {
    path_text(text);
    return true;
  } catch (const text::Json::exception&) {
    return false;
  }
}

struct Blend {
  std::vector<std::string> prefixes;
  std::vector<std::string> weights;  // of each; none where there is one prefix, or none is given
};

// Weights and prefixes in turn, where each other word is a number; else prefixes alone.
Blend blend_of(const text::YamlNode& list) {
  Blend blend;
  bool is_weighted = list.items.size() % 2 == 0;
  for (size_t i = 0; i < list.items.size(); i += 2)
    is_weighted = is_weighted && number_value(list.items[i].text).has_value();
  for (size_t i = 0; i < list.items.size(); ++i) {
    const bool is_weight = is_weighted && i % 2 == 0;
    (is_weight ? blend.weights : blend.prefixes).push_back(list.items[i].text);
  }
  return blend;
}

// "98,1,1" as whole numbers in the same proportion, of which there are three; nothing where it is
// none.
std::optional<std::vector<int64_t>> shares_of(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',' || c == ' ' || c == '/') {
      if (!parts.back().empty()) parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.back().empty()) parts.pop_back();
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  size_t decimals = 0;
  for (std::string& part : parts) {
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
    if (!std::ranges::all_of(part, is_digit) || std::ranges::count(part, '.') > 1 || part == ".")
      return std::nullopt;
    if (const size_t point = part.find('.'); point != part.npos)
      decimals = std::max(decimals, part.size() - point - 1);
  }
  std::vector<int64_t> shares;
  for (std::string part : parts) {
    const size_t point = std::min(part.find('.'), part.size());
    const size_t own = point < part.size() ? part.size() - point - 1 : 0;
    if (point < part.size()) part.erase(point, 1);
    part.append(decimals - own, '0');
    const auto share = whole_value("0" + part);
    if (part.size() > 15 || !share || *share > kMostShare) return std::nullopt;
    shares.push_back(*share);
  }
  shares.resize(3);
  if (shares[0] == 0) return std::nullopt;
  return shares;
}

}  // namespace

// Sets the training data. True if they are known.
bool MegatronLine::sources(std::string_view flag) {
  const text::YamlNode* list = reader_.node(flag);
  if (list == nullptr) return false;
  const Blend blend = blend_of(*list);
  if (blend.prefixes.size() == 1) {
    set(flag, "training.data.path", path_text(blend.prefixes[0]));
    set(flag, "training.data.format", std::string("megatron"));
    return true;
  }
  if (blend.weights.empty()) {
    reader_.error(flag, fmt::format("--{} lists {} data sets without weights, which Megatron "
                                    "derives from their sizes: write a weight before each",
                                    flag, blend.prefixes.size()));
    return false;
  }
  std::vector<std::string> sources;
  for (size_t i = 0; i < blend.prefixes.size(); ++i) {
    if (number_value(blend.weights[i]).value_or(0) <= 0) {
      reader_.error(flag, fmt::format("--{} gives {} the weight {}; a weight must be above 0", flag,
                                      blend.prefixes[i], blend.weights[i]));
      return false;
    }
    sources.push_back(fmt::format("{{path: {}, weight: {}, format: megatron}}",
                                  path_text(blend.prefixes[i]), blend.weights[i]));
  }
  set(flag, "training.data.sources", fmt::format("[{}]", fmt::join(sources, ", ")));
  return true;
}

// Sets the parts for training and evaluation; true if there is evaluation.
bool MegatronLine::split() {
  const std::string text = reader_.text("split").value_or(std::string(kDefaultSplit));
  const auto shares = shares_of(text);
  if (!shares) {
    reader_.error("split", fmt::format("--split '{}': expected up to three numbers separated by "
                                       "commas, the first above 0, as in 98,1,1",
                                       text));
    return false;
  }
  set("split", "training.data.split", fmt::format("[{}]", fmt::join(*shares, ", ")));
  return (*shares)[1] > 0;
}

void MegatronLine::data() {
  packing();
  for (const char* flag : {"data-path", "train-data-path", "valid-data-path"}) {
    const text::YamlNode* list = reader_.node(flag);
    if (list == nullptr) continue;
    for (const text::YamlNode& name : list->items) {
      if (is_utf8(name.text)) continue;
      reader_.error(flag, fmt::format("--{}: '{}' is not UTF-8, which a job file requires", flag,
                                      text::printable(name.text)));
      return;
    }
  }
  const bool has_own_parts = has("train-data-path") || has("valid-data-path");
  if (has("data-path") && has_own_parts) {
    reader_.error("data-path",
                  "--data-path excludes --train-data-path and --valid-data-path: remove one");
    return;
  }
  if (has_own_parts && has("split")) {
    reader_.error("split", "--split requires --data-path: remove --split beside --train-data-path");
    return;
  }
  bool is_evaluated = false;
  if (has("data-path")) {
    if (!sources("data-path")) return;
    is_evaluated = split();
  } else if (!sources("train-data-path")) {
    return;
  }
  auto every = whole("eval-interval");
  if (!every && has("valid-data-path")) every = kDefaultEvaluationInterval;
  const auto steps = whole("eval-iters").value_or(kDefaultEvaluationSteps);
  if (!every || steps == 0) return;
  if (const text::YamlNode* list = reader_.node("valid-data-path")) {
    const Blend blend = blend_of(*list);
    if (blend.prefixes.size() > 1) {
      reader_.error("valid-data-path",
                    "--valid-data-path with several data sets is not supported: give one, or write "
                    "them to training.evaluation.sets, which evaluates each separately");
      return;
    }
    set("valid-data-path", "training.evaluation.sets",
        fmt::format("[{{name: validation, path: {}, format: megatron}}]",
                    path_text(blend.prefixes.at(0))));
    is_evaluated = true;
  }
  if (!is_evaluated) return;
  set("eval-interval", "training.evaluation.every_steps", *every);
  if (const auto batch = whole("global-batch-size")) {
    set("eval-iters", "training.evaluation.samples", product_of({steps, *batch}));
  } else {
    reader_.warn("eval-interval",
                 "--eval-iters requires --global-batch-size, because a job file counts samples");
  }
}

// Documents of one sample are apart where positions and attention are reset, both.
void MegatronLine::packing() {
  const bool positions = has("reset-position-ids"), attention = has("reset-attention-mask");
  if (positions != attention) {
    const std::string_view given = positions ? "reset-position-ids" : "reset-attention-mask";
    const std::string_view other = positions ? "reset-attention-mask" : "reset-position-ids";
    reader_.error(given, fmt::format("--{} without --{} is not supported: give both "
                                     "(training.data.pack: documents), or neither",
                                     given, other));
    return;
  }
  if (positions) {
    set("reset-attention-mask", "training.data.pack", std::string("documents"));
    if (!has("eod-mask-loss")) {
      reader_.warn("reset-attention-mask",
                   "in smp, the last token of a document has no target, as with --eod-mask-loss");
    }
  } else if (has("eod-mask-loss")) {
    reader_.error("eod-mask-loss",
                  "--eod-mask-loss requires --reset-position-ids and --reset-attention-mask "
                  "(training.data.pack: documents)");
  }
}

}  // namespace smp::importers
