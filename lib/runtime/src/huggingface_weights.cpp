#include "smp/runtime/huggingface_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "json_depth.h"
#include "number_formats.h"
#include "smp/plan/check.h"
#include "smp/plan/errors.h"
#include "smp/plan/json.h"
#include "smp/plan/unreadable.h"

namespace smp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::string_view kGpt2Prefix = "transformer.";
constexpr int64_t kReadBytes = 1 << 20;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_unreadable(fmt::format("training.init_from: cannot read {}", path), errno);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Buffers that older files carry beside the weights: masks and rotary frequencies.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

}  // namespace

std::map<std::string, std::string> parse_weight_index(const std::string& path,
                                                      const std::string& text) {
  if (nests_too_deep(text)) {
    throw ConfigError(fmt::format("{}: nests more than {} levels deep", path, kMostJsonLevels));
  }
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw ConfigError(fmt::format("{}: no JSON object with a 'weight_map'", path));
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    if (shard.find('/') != std::string::npos || !shard.ends_with(".safetensors")) {
      throw ConfigError(
          fmt::format("{}: tensor '{}' lies in {}, which is no name of a shard beside "
                      "it",
                      path, name, file.dump()));
    }
    files[name] = shard;
  }
  return files;
}

HuggingFaceWeights::HuggingFaceWeights(std::string folder, const ModelSpec& model)
    : folder_(std::move(folder)) {
  const std::string config = folder_ + "/config.json";
  check_huggingface_config(config, text_of(config), model);
  open_files();
  check_tensors(model);
  look_at_all();
}

void HuggingFaceWeights::look_at_all() {
  std::vector<std::string> paths = {folder_ + "/config.json"};
  if (!file_of_.empty()) paths.push_back(folder_ + "/" + kIndex);
  for (const auto& [name, reader] : files_) paths.push_back(folder_ + "/" + name);
  known_ = look_at_files(folder_, paths);
}

std::vector<FileIdentity> HuggingFaceWeights::files() const {
  std::vector<FileIdentity> files;
  for (const KnownFile& file : known_) files.push_back(file.identity);
  return files;
}

void HuggingFaceWeights::check_files_unchanged() const {
  for (const KnownFile& file : known_) {
    const std::string path = folder_ + "/" + file.identity.name;
    check_unchanged(file, path, look_at_file(path, 0).stamp);
  }
}

HuggingFaceWeights::~HuggingFaceWeights() = default;

void HuggingFaceWeights::open_files() {
  const std::string index = folder_ + "/" + kIndex;
  if (!fs::exists(index)) {
    if (!fs::exists(folder_ + "/" + kSingle)) {
      throw ConfigError(
          fmt::format("training.init_from: {} holds neither {} nor {}", folder_, kSingle, kIndex));
    }
    add_file(kSingle);
    return;
  }
  file_of_ = parse_weight_index(index, text_of(index));
  for (const auto& [name, path] : file_of_) {
    if (files_.count(path) == 0) add_file(path);
  }
  for (const auto& [name, path] : file_of_) {
    if (stored_.count(name) == 0 || stored_.at(name).file != files_.at(path).get()) {
      throw ConfigError(fmt::format("{}: tensor '{}' is not in {}", index, name, path));
    }
  }
}

void HuggingFaceWeights::add_file(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  if (!fs::exists(path)) throw ConfigError(fmt::format("{}: the file is missing", path));
  const auto& reader = files_[name] = std::make_unique<SafetensorsReader>(path);
  for (const SafetensorsEntry& entry : reader->header().entries) {
    if (!stored_.emplace(entry.name, Stored{reader.get(), &entry}).second) {
      throw ConfigError(
          fmt::format("{}: tensor '{}' is in another shard as well", path, entry.name));
    }
    const auto listed = file_of_.find(entry.name);
    if (!file_of_.empty() && (listed == file_of_.end() || listed->second != name)) {
      throw ConfigError(
          fmt::format("{}: the index does not list tensor '{}' of {}", folder_, entry.name, name));
    }
  }
}

// GPT-2's own files are those of its body, without the name of the body in front.
std::string HuggingFaceWeights::their_name(const std::string& name, const ModelSpec& model) const {
  const bool is_body = model.family == ModelFamily::kGpt2 && stored_.count("wte.weight") != 0;
  return is_body && name.starts_with(kGpt2Prefix) ? name.substr(kGpt2Prefix.size()) : name;
}

void HuggingFaceWeights::check_tensors(const ModelSpec& model) {
  std::map<std::string, bool> wanted;
  for (const HuggingFaceTensor& tensor : huggingface_tensors(model)) {
    const std::string name = their_name(tensor.name, model);
    const auto found = stored_.find(name);
    if (found == stored_.end()) {
      throw ConfigError(fmt::format("training.init_from: {} has no tensor '{}'", folder_, name));
    }
    const SafetensorsEntry& entry = *found->second.entry;
    if (entry.shape != tensor.shape || !is_floating(entry.dtype)) {
      throw ConfigError(fmt::format(
          "training.init_from: {}: tensor '{}' is {} [{}], the model needs floating-point [{}]",
          folder_, name, safetensors_name_of(entry.dtype), fmt::join(entry.shape, ", "),
          fmt::join(tensor.shape, ", ")));
    }
    wanted[name] = true;
    int64_t row = 0;
    for (const ParameterSpec& source : tensor.sources) {
      sources_[source.name] = {found->second, row, tensor.transposed};
      row += source.rows;
    }
  }
  for (const auto& [name, stored] : stored_) {
    if (wanted.count(name) != 0 || is_buffer(name)) continue;
    throw ConfigError(fmt::format(
        "training.init_from: {} has a tensor '{}', and this model has none of that name{}", folder_,
        name,
        name == "lm_head.weight" ? ": model.tied_embeddings is true, set it to false to use it"
                                 : ""));
  }
}

void HuggingFaceWeights::read(const TensorPiece& piece) const {
  const Source& source = sources_.at(piece.name);
  const SafetensorsEntry& entry = *source.stored.entry;
  const int64_t stored_cols = entry.shape.size() == 2 ? entry.shape[1] : 1;
  const int64_t in_bytes = bytes_of(entry.dtype), out_bytes = bytes_of(piece.dtype);
  std::vector<std::byte> buffer;
  for (const Rectangle& rectangle : rectangles_of(piece)) {
    const Box& box = rectangle.box;
    std::byte* const out = piece.data + rectangle.offset * out_bytes;
    // The rectangle as it is stored: rows of these, from these columns on.
    const int64_t first = source.first_row + box.row_begin;
    const Box stored = source.transposed
                           ? Box{box.col_begin, box.col_end, first, first + box.rows()}
                           : Box{first, first + box.rows(), box.col_begin, box.col_end};
    // Whole stored rows follow each other, and are read many at once.
    const bool whole = stored.cols() == stored_cols;
    const int64_t most = whole ? std::max<int64_t>(1, kReadBytes / (stored_cols * in_bytes)) : 1;
    for (int64_t row = stored.row_begin; row < stored.row_end; row += most) {
      const int64_t rows = std::min(most, stored.row_end - row);
      buffer.resize(static_cast<size_t>(rows * stored.cols() * in_bytes));
      source.stored.file->read(entry, (row * stored_cols + stored.col_begin) * in_bytes,
                               static_cast<int64_t>(buffer.size()), buffer.data());
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = row + i - stored.row_begin;
        convert_numbers(entry.dtype, buffer.data() + i * stored.cols() * in_bytes, stored.cols(),
                        piece.dtype, out + (source.transposed ? at : at * box.cols()) * out_bytes,
                        source.transposed ? box.cols() : 1);
      }
    }
  }
}

}  // namespace smp
