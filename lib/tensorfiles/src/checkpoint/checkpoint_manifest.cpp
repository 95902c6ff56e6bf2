#include "smp/tensorfiles/checkpoint/checkpoint_manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "smp/plan/base/xxh64.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/json_depth.h"
#include "smp/tensorfiles/safetensors/safetensors.h"

namespace smp::checkpoint {
namespace {

constexpr int kFormat = 2;
constexpr size_t kMostDims = 2;

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

// The hash of a manifest is that of its text without it.
std::string sealed(text::OrderedJson json) {
  const std::string text = json.dump();
  json["hash"] = hex(xxh64(text.data(), static_cast<int64_t>(text.size())));
  return json.dump() + "\n";
}

text::OrderedJson tensor_json(const SavedTensor& tensor) {
  text::OrderedJson json;
  json["name"] = tensor.name;
  json["dtype"] = safetensors::safetensors_name_of(tensor.dtype);
  json["shape"] = tensor.shape;
  json["offsets"] = tensor.offsets;
  json["sizes"] = tensor.sizes;
  json["xxh64"] = text::OrderedJson::array();
  for (const uint64_t hash : tensor.hashes) json["xxh64"].push_back(hex(hash));
  return json;
}

class ManifestParser {
 public:
  explicit ManifestParser(const std::string& path) : path_(path) {}

  // `of_all`: of a whole checkpoint, not of a rank's part.
  Manifest parse(const std::string& text, bool of_all) const {
    if (text::nests_too_deep(text)) refuse("nests more than {} levels deep", text::kMostJsonLevels);
    text::OrderedJson json;
    try {
      json = text::OrderedJson::parse(text);
    } catch (const text::OrderedJson::exception& error) {
      refuse("not valid JSON: {}", error.what());
    }
    if (!json.is_object()) refuse("not a checkpoint manifest: expected a JSON object");
    if (whole(json, "format") == 1) {
      refuse(
          "format 1 does not record its job, so this version, which reads format {}, cannot check "
          "that training would continue unchanged: finish the run with the version of smp that "
          "started it",
          kFormat);
    }
    if (whole(json, "format") != kFormat) {
      refuse("format {}; this version reads format {}", whole(json, "format"), kFormat);
    }
    check_hash(json);
    Manifest manifest;
    manifest.step = whole(json, "step");
    if (of_all) manifest.training = training_of(json);
    for (const text::OrderedJson& file : list(json, "files"))
      manifest.files.push_back(file_of(file));
    return manifest;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    throw CheckpointError(
        fmt::format("{}: {}", path_, fmt::format(text, std::forward<Args>(args)...)));
  }

  const text::OrderedJson& member(const text::OrderedJson& json, const char* key) const {
    if (!json.is_object() || !json.contains(key)) refuse("no '{}'", key);
    return json.at(key);
  }

  const text::OrderedJson& list(const text::OrderedJson& json, const char* key) const {
    const text::OrderedJson& found = member(json, key);
    if (!found.is_array()) refuse("'{}' is not a list", key);
    return found;
  }

  std::string word(const text::OrderedJson& json, const char* key) const {
    const text::OrderedJson& found = member(json, key);
    if (!found.is_string()) refuse("'{}' is not a string", key);
    return found.get<std::string>();
  }

  int64_t number(const text::OrderedJson& json, const char* key) const {
    if (!json.is_number_unsigned() ||
        json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
      refuse("'{}' is {}; expected an integer of at least 0", key, json.dump());
    }
    return json.get<int64_t>();
  }

  int64_t whole(const text::OrderedJson& json, const char* key) const {
    return number(member(json, key), key);
  }

  std::vector<int64_t> numbers(const text::OrderedJson& json, const char* key) const {
    std::vector<int64_t> found;
    for (const text::OrderedJson& item : list(json, key)) found.push_back(number(item, key));
    return found;
  }

  uint64_t hash_of(const text::OrderedJson& json) const {
    const std::string text = json.is_string() ? json.get<std::string>() : "";
    uint64_t hash = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
    if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
      refuse("{} is not a hash of 16 hexadecimal digits", json.dump());
    }
    return hash;
  }

  void check_hash(text::OrderedJson json) const {
    const uint64_t expected = hash_of(member(json, "hash"));
    json.erase("hash");
    const std::string text = json.dump();
    if (xxh64(text.data(), static_cast<int64_t>(text.size())) != expected) {
      refuse("the manifest does not match its own hash: the file was changed after it was written");
    }
  }

  runinfo::TrainingRecord training_of(const text::OrderedJson& json) const {
    runinfo::TrainingRecord training;
    const text::OrderedJson& job = member(json, "job");
    if (!job.is_object()) refuse("'job' is not an object");
    for (const auto& [key, value] : job.items()) {
      if (!value.is_string()) refuse("'job': '{}' is not a string", key);
      training.job.emplace_back(key, value.get<std::string>());
    }
    for (const text::OrderedJson& file : list(json, "data")) {
      training.data.push_back(
          {word(file, "name"), whole(file, "bytes"), hash_of(member(file, "sampled_hash"))});
    }
    return training;
  }

  SavedFile file_of(const text::OrderedJson& json) const {
    SavedFile file;
    file.name = word(json, "name");
    if (file.name.find('/') != std::string::npos || !file.name.ends_with(".safetensors")) {
      refuse("'{}' is not a valid file name of a shard", file.name);
    }
    file.bytes = whole(json, "bytes");
    for (const text::OrderedJson& tensor : list(json, "tensors"))
      file.tensors.push_back(tensor_of(tensor));
    return file;
  }

  SavedTensor tensor_of(const text::OrderedJson& json) const {
    SavedTensor tensor;
    tensor.name = word(json, "name");
    const std::string dtype = word(json, "dtype");
    const std::optional<DType> known = safetensors::parse_safetensors_dtype(dtype);
    if (!known) refuse("tensor '{}': unsupported dtype '{}'", tensor.name, dtype);
    tensor.dtype = *known;
    tensor.shape = numbers(json, "shape");
    tensor.offsets = numbers(json, "offsets");
    tensor.sizes = numbers(json, "sizes");
    for (const text::OrderedJson& hash : list(json, "xxh64"))
      tensor.hashes.push_back(hash_of(hash));
    check(tensor);
    return tensor;
  }

  void check(const SavedTensor& tensor) const {
    const size_t dims = tensor.shape.size();
    if (dims < 1 || dims > kMostDims || tensor.offsets.size() != dims ||
        tensor.sizes.size() != dims) {
      refuse("tensor '{}': shape, offsets and sizes must all have one dim, or all have two",
             tensor.name);
    }
    int64_t bytes = bytes_of(tensor.dtype);
    for (size_t dim = 0; dim < dims; ++dim) {
      if (__builtin_mul_overflow(bytes, tensor.shape[dim], &bytes)) {
        refuse("tensor '{}': the size of shape [{}] overflows 64 bits", tensor.name,
               fmt::join(tensor.shape, ", "));
      }
      if (tensor.sizes[dim] < 1 || tensor.sizes[dim] > tensor.shape[dim] ||
          tensor.offsets[dim] > tensor.shape[dim] - tensor.sizes[dim]) {
        refuse("tensor '{}': a part of size [{}] at [{}] does not lie in [{}]", tensor.name,
               fmt::join(tensor.sizes, ", "), fmt::join(tensor.offsets, ", "),
               fmt::join(tensor.shape, ", "));
      }
    }
    const int64_t blocks = (tensor.bytes() + kHashBlockBytes - 1) / kHashBlockBytes;
    if (static_cast<int64_t>(tensor.hashes.size()) != blocks) {
      refuse("tensor '{}': {} hashes for {} blocks", tensor.name, tensor.hashes.size(), blocks);
    }
  }

  const std::string& path_;
};

bool overlap(const SavedTensor& a, const SavedTensor& b) {
  for (size_t dim = 0; dim < a.shape.size(); ++dim) {
    if (a.offsets[dim] + a.sizes[dim] <= b.offsets[dim]) return false;
    if (b.offsets[dim] + b.sizes[dim] <= a.offsets[dim]) return false;
  }
  return true;
}

// Rectangles of one tensor: alike, apart, and together all of it.
void check_whole(const std::string& path, const std::vector<const SavedTensor*>& parts) {
  const SavedTensor& first = *parts.front();
  int64_t whole = 1, stored = 0;
  for (const int64_t dim : first.shape) whole *= dim;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i]->shape != first.shape || parts[i]->dtype != first.dtype) {
      throw CheckpointError(
          fmt::format("{}: tensor '{}' has parts of different shapes or types", path, first.name));
    }
    for (size_t j = 0; j < i; ++j) {
      if (overlap(*parts[i], *parts[j])) {
        throw CheckpointError(fmt::format("{}: tensor '{}': two parts overlap", path, first.name));
      }
    }
    stored += parts[i]->elements();
  }
  if (stored != whole) {
    throw CheckpointError(fmt::format("{}: tensor '{}': the parts cover {} of {} elements", path,
                                      first.name, stored, whole));
  }
}

}  // namespace

int64_t SavedTensor::elements() const {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return elements;
}

std::string to_json(const Manifest& manifest) {
  text::OrderedJson json;
  json["format"] = kFormat;
  json["step"] = manifest.step;
  json["job"] = text::OrderedJson::object();
  for (const auto& [key, value] : manifest.training.job) json["job"][key] = value;
  json["data"] = text::OrderedJson::array();
  for (const files::FileIdentity& file : manifest.training.data) {
    json["data"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"sampled_hash", hex(file.sampled_hash)}});
  }
  json["files"] = text::OrderedJson::array();
  for (const SavedFile& file : manifest.files) {
    text::OrderedJson one;
    one["name"] = file.name;
    one["bytes"] = file.bytes;
    one["tensors"] = text::OrderedJson::array();
    for (const SavedTensor& tensor : file.tensors) one["tensors"].push_back(tensor_json(tensor));
    json["files"].push_back(std::move(one));
  }
  return sealed(std::move(json));
}

Manifest parse_manifest_part(const std::string& path, const std::string& text) {
  return ManifestParser(path).parse(text, false);
}

Manifest parse_manifest(const std::string& path, const std::string& text) {
  Manifest manifest = ManifestParser(path).parse(text, true);
  std::map<std::string_view, std::vector<const SavedTensor*>> parts;
  for (const SavedFile& file : manifest.files) {
    for (const SavedTensor& tensor : file.tensors) parts[tensor.name].push_back(&tensor);
  }
  for (const auto& [name, of_one] : parts) check_whole(path, of_one);
  return manifest;
}

}  // namespace smp::checkpoint
