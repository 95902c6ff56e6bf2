#include "smp/tensorfiles/pretrained/kept_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "smp/plan/files/atomic_file.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/json_depth.h"
#include "smp/tensorfiles/pretrained/model_folder.h"
#include "smp/tensorfiles/pretrained/tokenizer_files.h"

namespace smp::pretrained {
namespace {

namespace fs = std::filesystem;

std::string kept_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

text::OrderedJson object_of(const std::string& text) {
  text::OrderedJson found = text::nests_too_deep(text)
                                ? text::OrderedJson()
                                : text::OrderedJson::parse(text, nullptr, false);
  return found.is_object() ? found : text::OrderedJson::object();
}

bool is_tokenizers(const std::string& name) { return name != kGenerationConfig; }

void keep_ids(const TrainingSpec& training, const std::string& dir) {
  text::OrderedJson ours = object_of(kept_text(dir + "/config.json"));
  const std::map<std::string, int64_t> said = training.tokenizer.empty()
                                                  ? std::map<std::string, int64_t>()
                                                  : special_token_ids(training.tokenizer);
  const text::OrderedJson theirs = training.init_from.empty()
                                       ? text::OrderedJson::object()
                                       : object_of(kept_text(training.init_from + "/config.json"));
  for (const char* token : kSpecialTokens) {
    const std::string key = fmt::format("{}_id", token);
    if (theirs.contains(key))
      ours[key] = theirs.at(key);
    else if (const auto found = said.find(token); found != said.end())
      ours[key] = found->second;
  }
  files::write_file_atomically(dir + "/config.json", ours.dump(2) + "\n");
}

}  // namespace

std::string keep_files(const TrainingSpec& training, const std::string& dir) {
  const std::string& origin = training.init_from;
  const std::string& tokenizer = training.tokenizer.empty() ? origin : training.tokenizer;
  if (tokenizer.empty()) return "";
  try {
    keep_ids(training, dir);
    for (const std::string& name : files_to_keep(tokenizer, "training.tokenizer")) {
      if (is_tokenizers(name))
        files::write_file_atomically(dir + "/" + name, kept_text(tokenizer + "/" + name));
    }
    const std::string generation = fmt::format("{}/{}", origin, kGenerationConfig);
    std::error_code none;
    if (!origin.empty() && fs::is_regular_file(generation, none))
      files::write_file_atomically(fmt::format("{}/{}", dir, kGenerationConfig),
                                   kept_text(generation));
    return "";
  } catch (const std::exception& error) {
    return fmt::format(
        "note: {} holds the weights, but copying the tokenizer and settings of {} failed: {}\n",
        dir, tokenizer == origin || origin.empty() ? tokenizer : tokenizer + " and " + origin,
        error.what());
  }
}

}  // namespace smp::pretrained
