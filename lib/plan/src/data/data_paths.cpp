#include "data_paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/data/token_file.h"
#include "spec/choices.h"

namespace smp::data {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Files beside tokens that hold no tokens themselves.
bool is_companion(const std::string& path) {
  for (const char* suffix : {".mask.bin", ".labels.npy", ".labels.bin", ".smp.json"}) {
    if (path.ends_with(suffix)) return true;
  }
  return false;
}

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> matches_of(const std::string& pattern, const std::string& key) {
  glob_t found{};
  const int error = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::erase_if(paths, is_folder);
  std::erase_if(paths, is_companion);
  if (error != 0 || paths.empty())
    throw ConfigError(fmt::format("{}: no file matches {}", key, pattern));
  std::sort(paths.begin(), paths.end());
  return paths;
}

// "corpus" and "corpus_text_document" of Megatron's users, and what smp-data was told.
std::optional<std::string> file_of_prefix(const std::string& prefix) {
  for (const std::string& stem : {prefix, prefix + "_text_document"}) {
    for (const char* suffix : {".bin", ".npy"}) {
      if (exists(stem + suffix) && !is_folder(stem + suffix)) return stem + suffix;
    }
  }
  return std::nullopt;
}

bool may_be(DataFormat format, const std::string& path) {
  switch (format) {
    case DataFormat::kText: return true;
    case DataFormat::kMegatron: return path.ends_with(".bin") || path.ends_with(".idx");
    case DataFormat::kNanogpt:
    case DataFormat::kLlmc: return path.ends_with(".bin");
    case DataFormat::kNpy: return path.ends_with(".npy");
  }
  return false;
}

// Names of parts that nobody wants in one stream.
void refuse_mixed_parts(const FoundData& found, const std::string& key) {
  std::string train, validation;
  for (const std::string& file : found.files) {
    const std::string name = fs::path(file).filename().string();
    if (name.find("train") != std::string::npos) train = name;
    if (name.find("val") != std::string::npos) validation = name;
  }
  if (train.empty() || validation.empty()) return;
  throw ConfigError(
      fmt::format("{}: {} holds {} and {}, which would be read as one stream: give the files to "
                  "train on, as in {}/*train*, and the others to training.evaluation.sets",
                  key, found.folder, train, validation, found.folder));
}

// The format that all files have; a folder's other files are none of the data where it is said.
void settle_format(FoundData& found, const StreamRequest& request, bool is_listed) {
  if (request.format) {
    found.format = *request.format;
    if (is_listed) {
      std::erase_if(found.files,
                    [&](const std::string& file) { return !may_be(found.format, file); });
    }
    if (found.files.empty()) {
      throw ConfigError(fmt::format("{}: {} holds no file of format {}", request.key, request.path,
                                    choice_name(found.format)));
    }
    return;
  }
  std::map<DataFormat, std::string> seen;
  for (const std::string& file : found.files) {
    const std::optional<DataFormat> format = format_of_file(file);
    if (!format) {
      throw ConfigError(fmt::format(
          "{}: {} has neither an index ({}.idx) nor llm.c's header, so its format is unknown: "
          "write format: nanogpt if the file is 16 bits a token without a header",
          request.key, file, without_data_suffix(file)));
    }
    seen.emplace(*format, file);
  }
  found.format = seen.begin()->first;
  if (seen.size() == 1) return;
  throw ConfigError(
      fmt::format("{}: {} holds files of several formats, {} ({}) and {} ({}): choose one with "
                  "format, or give a glob of the files",
                  request.key, request.path, seen.begin()->second, choice_name(seen.begin()->first),
                  seen.rbegin()->second, choice_name(seen.rbegin()->first)));
}

FoundData found_text(const StreamRequest& request) {
  TrainingSpec training;
  training.data_path = request.path;
  training.data_suffixes = request.suffixes;
  const DataFiles text = find_data_files(training, request.key);
  FoundData found{.folder = text.path, .format = DataFormat::kText, .files = {}};
  for (const DataFile& file : text.files) found.files.push_back(file.path);
  return found;
}

}  // namespace

std::vector<std::string> named_data(const TrainingSpec& training) {
  std::vector<std::string> named = {training.data_path};
  for (const MixtureSource& source : training.data_sources) named.push_back(source.path);
  for (const EvaluationSet& set : training.evaluation.sets) named.push_back(set.path);
  std::erase_if(named, [](const std::string& path) {
    return path.empty() || path == kPythonStdlib || (is_pattern(path) && !exists(path));
  });
  for (std::string& path : named) {
    if (!exists(path)) path = file_of_prefix(path).value_or(path);
  }
  for (size_t i = 0, files = named.size(); i < files; ++i) {
    const std::string prefix = without_data_suffix(named[i]);
    if (prefix == named[i]) continue;
    std::vector<std::string> beside = {prefix + ".idx", prefix + ".smp.json"};
    if (training.data_loss_mask.value_or(false)) {
      const std::vector<std::string> masks = masks_beside(named[i]);
      beside.insert(beside.end(), masks.begin(), masks.end());
    }
    std::erase_if(beside, [](const std::string& path) { return !exists(path); });
    named.insert(named.end(), beside.begin(), beside.end());
  }
  return named;
}

FoundData find_data(const StreamRequest& request) {
  const bool is_text = request.format == DataFormat::kText;
  if (request.path.empty() || request.path == kPythonStdlib) return found_text(request);
  FoundData found;
  found.folder = request.path;
  bool is_listed = false;
  if (!exists(request.path)) {
    if (is_pattern(request.path)) {
      found.files = matches_of(request.path, request.key);
      found.folder = fs::path(request.path).parent_path().string();
      is_listed = true;
    } else if (const auto file = file_of_prefix(request.path); file && !is_text) {
      found.files = {*file};
    } else {
      return found_text(request);  // says what is wrong
    }
  } else if (is_folder(request.path)) {
    found = found_text(request);
    is_listed = true;
    if (!is_text) std::erase_if(found.files, is_companion);
  } else {
    found.files = {request.path};
  }
  if (found.files.empty())
    throw ConfigError(fmt::format("{}: {} holds no data", request.key, request.path));
  settle_format(found, request, is_listed);
  if (found.format == DataFormat::kMegatron) {
    for (std::string& file : found.files) file = without_data_suffix(file) + ".bin";
    std::sort(found.files.begin(), found.files.end());
    found.files.erase(std::unique(found.files.begin(), found.files.end()), found.files.end());
  }
  if (is_folder(request.path) && found.format != DataFormat::kText)
    refuse_mixed_parts(found, request.key);
  return found;
}

}  // namespace smp::data
