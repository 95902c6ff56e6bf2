#include "smp/tensorfiles/pretrained/huggingface_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/git_lfs.h"
#include "smp/plan/files/unreadable.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/json_depth.h"
#include "smp/tensorfiles/pretrained/model_folder.h"
#include "smp/tensorfiles/safetensors/number_formats.h"

namespace smp::pretrained {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
// Parts that torch.compile, FSDP and activation checkpointing insert anywhere in names.
constexpr std::array<std::string_view, 3> kWrappers = {"_orig_mod.", "_fsdp_wrapped_module.",
                                                       "_checkpoint_wrapped_module."};
constexpr int64_t kReadBytes = 1 << 20;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    files::throw_unreadable(fmt::format("training.init_from: cannot read {}", path), errno);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (const std::string lfs = files::git_lfs_complaint(text); !lfs.empty()) {
    throw ConfigError(fmt::format("training.init_from: {}: {}", path, lfs));
  }
  return text;
}

std::string without_wrappers(std::string name) {
  for (const std::string_view wrapper : kWrappers) {
    for (size_t at = name.find(wrapper); at != name.npos; at = name.find(wrapper, at)) {
      if (at == 0 || name[at - 1] == '.') {
        name.erase(at, wrapper.size());
      } else {
        ++at;
      }
    }
  }
  return name;
}

// Buffers that older files carry beside the weights: masks and rotary frequencies.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// Files of DeepSeek-V3 and GLM-4.5 hold the layers that predict further tokens behind the model's
// own; transformers does not load them either.
bool is_of_later_layer(std::string_view name, const ModelSpec& model) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!model.router_correction_bias || !name.starts_with(kLayers)) return false;
  name.remove_prefix(kLayers.size());
  int64_t index = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' &&
         index >= model.num_layers;
}

bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

}  // namespace

std::map<std::string, std::string> parse_weight_index(const std::string& path,
                                                      const std::string& text) {
  if (text::nests_too_deep(text)) {
    throw ConfigError(
        fmt::format("{}: nests more than {} levels deep", path, text::kMostJsonLevels));
  }
  const auto json = text::Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw ConfigError(fmt::format("{}: expected a JSON object with 'weight_map'", path));
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    if (shard.find('/') != std::string::npos || !shard.ends_with(".safetensors")) {
      throw ConfigError(
          fmt::format("{}: tensor '{}' is listed in {}, which is not the name of a .safetensors "
                      "file in the same folder",
                      path, name, file.dump()));
    }
    files[name] = shard;
  }
  return files;
}

HuggingFaceWeights::HuggingFaceWeights(std::string folder, const ModelSpec& model)
    : folder_(std::move(folder)) {
  const std::string config = folder_ + "/config.json";
  huggingface::check_huggingface_config(config, text_of(config), model);
  files_to_keep(folder_, "training.init_from");
  open_files();
  name_as_models_do(model);
  check_tensors(model);
  look_at_all();
}

void HuggingFaceWeights::look_at_all() {
  std::vector<std::string> paths = {folder_ + "/config.json"};
  if (!file_of_.empty()) paths.push_back(folder_ + "/" + kIndex);
  for (const auto& [name, reader] : files_) paths.push_back(folder_ + "/" + name);
  known_ = files::look_at_files(folder_, paths);
}

std::vector<files::FileIdentity> HuggingFaceWeights::files() const {
  std::vector<files::FileIdentity> files;
  for (const files::KnownFile& file : known_) files.push_back(file.identity);
  return files;
}

void HuggingFaceWeights::check_files_unchanged() const {
  for (const files::KnownFile& file : known_) {
    const std::string path = folder_ + "/" + file.identity.name;
    files::check_unchanged(file, path, files::look_at_file(path, 0).stamp);
  }
}

HuggingFaceWeights::~HuggingFaceWeights() = default;

void HuggingFaceWeights::open_files() {
  const std::string index = folder_ + "/" + kIndex;
  const bool single = fs::exists(folder_ + "/" + kSingle);
  if (!fs::exists(index)) {
    if (!single) {
      throw ConfigError(fmt::format("training.init_from: {} holds neither {} nor {}{}", folder_,
                                    kSingle, kIndex, hint_of_no_weights()));
    }
    add_file(kSingle);
    return;
  }
  if (single) {
    throw ConfigError(fmt::format(
        "training.init_from: {} holds both {} and {}, whose weights may differ: remove one",
        folder_, kSingle, kIndex));
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

// A hint: the kind of weights that the folder holds in place of safetensors.
std::string HuggingFaceWeights::hint_of_no_weights() const {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      return fmt::format(
          ", only {}, a pickle, which smp does not read: load it with transformers and write "
          "safetensors with save_pretrained()",
          name);
    }
    if (name == kSingle || name == kIndex) {
      return fmt::format(": {} is a link to a missing file", name);
    }
    if (name.ends_with(".safetensors")) {
      return fmt::format(", only {}: download {} too, which lists the shards", name, kIndex);
    }
  }
  return "";
}

void HuggingFaceWeights::add_file(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  if (!fs::exists(path)) throw ConfigError(fmt::format("{}: the file is missing", path));
  const auto& reader = files_[name] = std::make_unique<safetensors::SafetensorsReader>(path);
  for (const safetensors::SafetensorsEntry& entry : reader->header().entries) {
    if (!stored_.emplace(entry.name, Stored{reader.get(), &entry}).second) {
      throw ConfigError(fmt::format("{}: tensor '{}' is in two shards", path, entry.name));
    }
    const auto listed = file_of_.find(entry.name);
    if (!file_of_.empty() && (listed == file_of_.end() || listed->second != name)) {
      throw ConfigError(
          fmt::format("{}: the index does not list tensor '{}' for {}", folder_, entry.name, name));
    }
  }
}

// Under the names that the model's class gives: without what wrappers of PyTorch put in front, and
// with the name of the body where the file is that of a body alone, as GPT-2's own are.
void HuggingFaceWeights::name_as_models_do(const ModelSpec& model) {
  const std::vector<huggingface::HuggingFaceTensor> tensors =
      huggingface::huggingface_tensors(model);
  std::set<std::string> wanted;
  for (const huggingface::HuggingFaceTensor& tensor : tensors) wanted.insert(tensor.name);
  std::vector<std::pair<std::string, Stored>> named;
  for (const auto& [name, stored] : stored_) named.emplace_back(without_wrappers(name), stored);
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(named, [&](const auto& item) { return item.first == name; });
  };
  const auto all_begin = [&](std::string_view prefix) {
    return std::ranges::all_of(named,
                               [&](const auto& item) { return item.first.starts_with(prefix); });
  };
  const std::string& table = tensors.front().name;
  for (const std::string_view prefix : {"module.", "model.", "transformer."}) {
    while (!named.empty() && !has(table) && all_begin(prefix)) {
      for (auto& [name, stored] : named) name.erase(0, prefix.size());
    }
  }
  const std::string body = table.substr(0, table.find('.') + 1);
  const bool is_body = !has(table) && has(table.substr(body.size()));
  stored_.clear();
  for (auto& [name, stored] : named) {
    if (is_body && wanted.count(body + name) > 0) name = body + name;
    const auto [first, is_new] = stored_.emplace(name, stored);
    if (is_new) continue;
    throw ConfigError(
        fmt::format("training.init_from: {}: tensors '{}' and '{}' both have the model's name '{}'",
                    folder_, first->second.entry->name, stored.entry->name, name));
  }
}

// If a model's head or its stacks share the token table, files may hold it again. The copies must
// be equal.
void HuggingFaceWeights::take_copies_of_table(const std::string& table, const ModelSpec& model) {
  for (const char* copy :
       {"lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    const bool of_head = copy == std::string_view("lm_head.weight");
    const auto again = stored_.find(copy);
    if (again == stored_.end() || (of_head && !model.tied_embeddings)) continue;
    const auto first = stored_.find(table);
    if (first == stored_.end()) {
      stored_[table] = again->second;
    } else if (!equal(first->second, again->second)) {
      throw ConfigError(fmt::format(
          "training.init_from: {}: tensors '{}' and '{}' differ, but {}", folder_,
          again->second.entry->name, first->second.entry->name,
          of_head ? "a tied model uses one matrix for both: if the head has its own matrix, set "
                    "tie_word_embeddings in config.json and model.tied_embeddings to false"
                  : "encoder and decoder of this model share one table"));
    }
    stored_.erase(copy);
  }
}

bool HuggingFaceWeights::equal(const Stored& a, const Stored& b) {
  if (a.entry->shape != b.entry->shape || a.entry->dtype != b.entry->dtype) return false;
  std::vector<std::byte> of_a, of_b;
  for (int64_t at = 0; at < a.entry->bytes(); at += kReadBytes) {
    const int64_t bytes = std::min(kReadBytes, a.entry->bytes() - at);
    of_a.resize(static_cast<size_t>(bytes));
    of_b.resize(static_cast<size_t>(bytes));
    a.file->read(*a.entry, at, bytes, of_a.data());
    b.file->read(*b.entry, at, bytes, of_b.data());
    if (of_a != of_b) return false;
  }
  return true;
}

// Why a tensor may be missing.
std::string HuggingFaceWeights::hint_of_missing(const std::string& name) const {
  if (name == "lm_head.weight") {
    return ": tie_word_embeddings in config.json and model.tied_embeddings are false; if the head "
           "uses the embedding's matrix, set both to true";
  }
  if (stored_.count(name + "_blocks") > 0) {
    return ": the experts are stored in MXFP4, which smp does not read: load the model with "
           "transformers' Mxfp4Config(dequantize=True), and write it with save_pretrained()";
  }
  for (const auto& [stored, where] : stored_) {
    if (!stored.ends_with("." + name)) continue;
    return fmt::format(
        ", only '{}': a prefix module., model. or transformer. is removed only if all tensors have "
        "it",
        where.entry->name);
  }
  return "";
}

void HuggingFaceWeights::check_tensors(const ModelSpec& model) {
  const std::vector<huggingface::HuggingFaceTensor> tensors =
      huggingface::huggingface_tensors(model);
  take_copies_of_table(tensors.front().name, model);
  std::set<std::string> wanted;
  for (const huggingface::HuggingFaceTensor& tensor : tensors) {
    const auto found = stored_.find(tensor.name);
    if (found == stored_.end()) {
      throw ConfigError(fmt::format("training.init_from: {} has no tensor '{}'{}", folder_,
                                    tensor.name, hint_of_missing(tensor.name)));
    }
    const safetensors::SafetensorsEntry& entry = *found->second.entry;
    if (entry.shape != tensor.shape || !is_floating(entry.dtype)) {
      throw ConfigError(
          fmt::format("training.init_from: {}: tensor '{}' is {} [{}]; the model needs a "
                      "floating-point type and [{}]",
                      folder_, entry.name, safetensors::safetensors_name_of(entry.dtype),
                      fmt::join(entry.shape, ", "), fmt::join(tensor.shape, ", ")));
    }
    wanted.insert(tensor.name);
    int64_t matrix_begin = 0;
    for (const huggingface::HuggingFaceMatrix& matrix : tensor.matrices) {
      const int64_t row_step = matrix.transposed ? 1 : matrix.cols();
      for (const huggingface::SourceRows& source : matrix.sources) {
        sources_[source.parameter.name].push_back(
            {.stored = found->second,
             .begin = source.begin,
             .end = source.end,
             .at = matrix_begin + source.first * row_step,
             .row_step = source.step * row_step,
             .col_step = matrix.transposed ? matrix.rows() : 1});
      }
      matrix_begin += matrix.size();
    }
  }
  for (const auto& [name, stored] : stored_) {
    if (wanted.count(name) != 0 || is_buffer(name) || is_of_later_layer(name, model)) continue;
    throw ConfigError(fmt::format("training.init_from: {}: tensor '{}' is not in this model",
                                  folder_, stored.entry->name));
  }
}

void HuggingFaceWeights::read(const safetensors::TensorPiece& piece) const {
  for (const safetensors::Rectangle& rectangle : safetensors::rectangles_of(piece)) {
    for (const Source& source : sources_.at(piece.name)) {
      model::Box box = rectangle.box;
      box.row_begin = std::max(box.row_begin, source.begin);
      box.row_end = std::min(box.row_end, source.end);
      if (box.rows() <= 0) continue;
      const int64_t skipped = (box.row_begin - rectangle.box.row_begin) * box.cols();
      read_box(source, box, piece.dtype,
               piece.data + (rectangle.offset + skipped) * bytes_of(piece.dtype));
    }
  }
}

// Fills `out` with the box of a parameter, row by row; the box is within the source. A strip is
// what lies closest together in the file: a row of the box or, of a vector and where the file has
// it transposed, a column.
void HuggingFaceWeights::read_box(const Source& source, const model::Box& box, DType dtype,
                                  std::byte* out) const {
  const safetensors::SafetensorsEntry& entry = *source.stored.entry;
  const int64_t in_bytes = bytes_of(entry.dtype), out_bytes = bytes_of(dtype);
  const bool transposed = source.row_step < source.col_step || box.cols() == 1;
  const int64_t strips = transposed ? box.cols() : box.rows();
  const int64_t count = transposed ? box.rows() : box.cols();  // numbers of a strip
  const int64_t step = transposed ? source.row_step : source.col_step;
  const int64_t to_next = transposed ? source.col_step : source.row_step;
  const int64_t span = (count - 1) * step + 1;
  const int64_t first = source.at + (box.row_begin - source.begin) * source.row_step +
                        box.col_begin * source.col_step;
  // Strips that follow each other are read many at once.
  const bool whole = to_next - span < step;
  const int64_t most = whole ? std::max<int64_t>(1, kReadBytes / (to_next * in_bytes)) : 1;
  std::vector<std::byte> buffer, strip(static_cast<size_t>(span * out_bytes));
  for (int64_t begin = 0; begin < strips; begin += most) {
    const int64_t n = std::min(most, strips - begin), numbers = (n - 1) * to_next + span;
    buffer.resize(static_cast<size_t>(numbers * in_bytes));
    source.stored.file->read(entry, (first + begin * to_next) * in_bytes, numbers * in_bytes,
                             buffer.data());
    if (safetensors::count_not_finite(entry.dtype, buffer.data(), numbers) > 0) {
      throw ConfigError(
          fmt::format("training.init_from: {}: tensor '{}' holds inf or nan: use weights saved "
                      "before they became non-finite",
                      folder_, entry.name));
    }
    for (int64_t i = 0; i < n; ++i) {
      const std::byte* from = buffer.data() + i * to_next * in_bytes;
      std::byte* to = out + (begin + i) * (transposed ? 1 : box.cols()) * out_bytes;
      const int64_t out_step = transposed ? box.cols() : 1;
      if (step == 1) {
        safetensors::convert_numbers(entry.dtype, from, count, dtype, to, out_step);
        continue;
      }
      safetensors::convert_numbers(entry.dtype, from, span, dtype, strip.data(), 1);
      for (int64_t k = 0; k < count; ++k) {
        std::copy_n(strip.data() + k * step * out_bytes, out_bytes, to + k * out_step * out_bytes);
      }
    }
  }
}

}  // namespace smp::pretrained
