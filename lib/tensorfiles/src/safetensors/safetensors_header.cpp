#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "smp/plan/text/json.h"
#include "smp/plan/text/json_depth.h"
#include "smp/tensorfiles/safetensors/safetensors.h"

// Reference: safetensors/src/tensor.rs (its error names stand in the comments below).
namespace smp::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths and data are little-endian");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct TypeName {
  DType dtype;
  const char* name;
};
constexpr std::array<TypeName, 7> kTypes = {{{DType::kF32, "F32"},
                                             {DType::kF64, "F64"},
                                             {DType::kBF16, "BF16"},
                                             {DType::kF16, "F16"},
                                             {DType::kI32, "I32"},
                                             {DType::kI64, "I64"},
                                             {DType::kU8, "U8"}}};

// Parses one header; every refusal names the file.
class Parser {
 public:
  explicit Parser(const std::string& path) : path_(path) {}

  SafetensorsHeader parse(std::string_view head, int64_t file_bytes) {
    const uint64_t length = header_length(head, file_bytes);
    SafetensorsHeader header;
    header.data_offset = static_cast<int64_t>(8 + length);
    const text::Json json = parse_json(head.substr(8, length));
    for (const auto& [name, value] : json.items()) {
      if (name == "__metadata__") {
        header.metadata = metadata_of(value);
      } else {
        header.entries.push_back(entry_of(name, value));
      }
    }
    check_coverage(header, file_bytes);
    return header;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    throw SafetensorsError(
        fmt::format("{}: {}", path_, fmt::format(text, std::forward<Args>(args)...)));
  }

  uint64_t header_length(std::string_view head, int64_t file_bytes) const {
    if (file_bytes < 8) {  // HeaderTooSmall
      refuse("not a safetensors file: {} bytes; the header length alone takes 8", file_bytes);
    }
    uint64_t length = 0;
    std::memcpy(&length, head.data(), sizeof length);
    if (length > kMaxHeaderBytes) {  // HeaderTooLarge
      refuse("the header has {} bytes; at most {} are allowed", length, kMaxHeaderBytes);
    }
    if (length > static_cast<uint64_t>(file_bytes) - 8) {  // InvalidHeaderLength
      refuse("the file is truncated: its header has {} bytes, the file {}", length, file_bytes);
    }
    return length;
  }

  // A DOM cannot tell duplicate keys, so they are caught while parsing.
  text::Json parse_json(std::string_view text) const {
    if (!text.starts_with('{'))
      refuse("the header does not start with '{{'");  // InvalidHeaderStart
    if (text::nests_too_deep(text))
      refuse("the header nests more than {} levels deep", text::kMostJsonLevels);
    std::vector<std::set<std::string>> keys;
    std::string duplicate;
    const auto watch = [&](int, text::Json::parse_event_t event, text::Json& value) {
      if (event == text::Json::parse_event_t::object_start) keys.emplace_back();
      if (event == text::Json::parse_event_t::object_end) keys.pop_back();
      if (event == text::Json::parse_event_t::key &&
          !keys.back().insert(value.get<std::string>()).second && duplicate.empty()) {
        duplicate = value.get<std::string>();
      }
      return true;
    };
    text::Json json;
    try {
      json = text::Json::parse(text, watch);
    } catch (const text::Json::exception& error) {  // InvalidHeader, InvalidHeaderDeserialization
      refuse("the header is not valid JSON: {}", error.what());
    }
    if (!duplicate.empty()) refuse("'{}' appears twice in the header", duplicate);
    return json;
  }

  std::map<std::string, std::string> metadata_of(const text::Json& value) const {
    std::map<std::string, std::string> metadata;
    if (!value.is_object()) refuse("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) refuse("__metadata__: the value of '{}' is not a string", key);
      metadata[key] = text.get<std::string>();
    }
    return metadata;
  }

  SafetensorsEntry entry_of(const std::string& name, const text::Json& value) const {
    SafetensorsEntry entry;
    entry.name = name;
    if (!value.is_object()) refuse("tensor '{}': not an object", name);
    for (const auto& [key, unused] : value.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        refuse("tensor '{}': unknown key '{}'", name, key);
      }
    }
    if (!value.contains("dtype") || !value["dtype"].is_string()) {
      refuse("tensor '{}': no dtype", name);
    }
    const auto type_text = value["dtype"].get<std::string>();
    const std::optional<DType> type = parse_safetensors_dtype(type_text);
    if (!type) {
      refuse(
          "tensor '{}': unsupported dtype '{}'; supported are F32, F64, BF16, F16, I32, I64 and U8",
          name, type_text);
    }
    entry.dtype = *type;
    entry.shape = numbers_of(name, value, "shape");
    const std::vector<int64_t> offsets = numbers_of(name, value, "data_offsets");
    if (offsets.size() != 2) {
      refuse("tensor '{}': data_offsets has {} values, not 2", name, offsets.size());
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    if (entry.end < entry.begin) {  // InvalidOffset
      refuse("tensor '{}': the end of its data ({}) is before their begin ({})", name, entry.end,
             entry.begin);
    }
    check_size(entry);
    return entry;
  }

  std::vector<int64_t> numbers_of(const std::string& name, const text::Json& value,
                                  const char* key) const {
    if (!value.contains(key) || !value[key].is_array()) refuse("tensor '{}': no {}", name, key);
    std::vector<int64_t> numbers;
    for (const text::Json& item : value[key]) {
      if (!item.is_number_unsigned() ||
          item.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
        refuse("tensor '{}': {} has the element {}; expected an integer of at least 0", name, key,
               item.dump());
      }
      numbers.push_back(item.get<int64_t>());
    }
    return numbers;
  }

  void check_size(const SafetensorsEntry& entry) const {
    int64_t bytes = bytes_of(entry.dtype);
    for (const int64_t dim : entry.shape) {
      if (__builtin_mul_overflow(bytes, dim, &bytes)) {  // ValidationOverflow
        refuse("tensor '{}': the size of shape [{}] overflows 64 bits", entry.name,
               fmt::join(entry.shape, ", "));
      }
    }
    if (bytes != entry.bytes()) {  // TensorInvalidInfo
      refuse("tensor '{}': the data have {} bytes, but {} [{}] takes {}", entry.name, entry.bytes(),
             safetensors_name_of(entry.dtype), fmt::join(entry.shape, ", "), bytes);
    }
  }

  // No holes, no overlaps, nothing behind the last tensor.
  void check_coverage(SafetensorsHeader& header, int64_t file_bytes) const {
    std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    int64_t end = 0;
    for (const SafetensorsEntry& entry : header.entries) {
      if (entry.begin != end) {  // InvalidOffset
        refuse("tensor '{}': its data begin at {}, but the previous tensor's data end at {}",
               entry.name, entry.begin, end);
      }
      end = entry.end;
    }
    const int64_t there = file_bytes - header.data_offset;
    if (end != there) {  // MetadataIncompleteBuffer
      refuse("the tensors take {} bytes, but the file holds {}", end, there);
    }
  }

  const std::string& path_;
};

}  // namespace

const char* safetensors_name_of(DType dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](auto& type) { return type.dtype == dtype; })
      ->name;
}

std::optional<DType> parse_safetensors_dtype(std::string_view name) {
  for (const TypeName& type : kTypes) {
    if (name == type.name) return type.dtype;
  }
  return std::nullopt;
}

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view head,
                                           int64_t file_bytes) {
  return Parser(path).parse(head, file_bytes);
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata) {
  // An element's size is its alignment.
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const int64_t a_bytes = bytes_of(a.dtype);
    const int64_t b_bytes = bytes_of(b.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
  text::OrderedJson json = text::OrderedJson::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  int64_t offset = 0;
  for (SafetensorsEntry& entry : entries) {
    int64_t bytes = bytes_of(entry.dtype);
    for (const int64_t dim : entry.shape) bytes *= dim;
    entry.begin = offset;
    entry.end = offset += bytes;
    json[entry.name] = {{"dtype", safetensors_name_of(entry.dtype)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + text;
}

}  // namespace smp::safetensors
