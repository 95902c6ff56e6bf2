#include "npy_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/printable.h"
#include "token_types.h"

namespace smp::data {
namespace {

constexpr int64_t kMagicBytes = 8;           // "\x93NUMPY", major, minor
constexpr int64_t kMostHeaderBytes = 65536;  // of an array of whole numbers: about 100

// The text behind 'key': in a Python dictionary of one line, up to the next key.
std::optional<std::string_view> value_of(std::string_view dictionary, std::string_view name) {
  const std::string quoted = fmt::format("'{}':", name);
  const size_t at = dictionary.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = dictionary.substr(at + quoted.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const bool is_tuple = rest.starts_with('(');
  const size_t end = rest.find_first_of(is_tuple ? ")" : ",}");
  if (end == std::string_view::npos) return std::nullopt;
  return rest.substr(0, end + (is_tuple ? 1 : 0));
}

std::optional<TokenType> type_of(std::string_view descr) {
  constexpr std::pair<std::string_view, TokenType> kTypes[] = {
      {"'|u1'", TokenType::kU8},  {"'|i1'", TokenType::kI8},  {"'<u2'", TokenType::kU16},
      {"'<i2'", TokenType::kI16}, {"'<u4'", TokenType::kU32}, {"'<i4'", TokenType::kI32},
      {"'<u8'", TokenType::kU64}, {"'<i8'", TokenType::kI64}};
  for (const auto& [name, type] : kTypes) {
    if (descr == name) return type;
  }
  return std::nullopt;
}

// "(12,)" and nothing else.
std::optional<int64_t> one_dimension(std::string_view shape) {
  if (shape.size() < 4 || !shape.starts_with('(') || !shape.ends_with(",)")) return std::nullopt;
  shape = shape.substr(1, shape.size() - 3);
  int64_t elements = 0;
  const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), elements);
  if (error != std::errc() || end != shape.data() + shape.size() || elements < 0)
    return std::nullopt;
  return elements;
}

}  // namespace

NpyHeader read_npy_header(size_t file, const std::string& key, const OpenFiles& files) {
  const std::string& path = files.path(file);
  const int64_t bytes = files.bytes(file);
  const auto refuse = [&](const std::string& what) -> ConfigError {
    return ConfigError(fmt::format("{}: {} {}", key, path, what));
  };
  std::string head(static_cast<size_t>(std::min<int64_t>(bytes, kMagicBytes + 4)), '\0');
  files.read(file, 0, static_cast<int64_t>(head.size()), head.data());
  if (!head.starts_with("\x93NUMPY") || head.size() < kMagicBytes + 4)
    throw refuse("is not a NumPy file: expected \\x93NUMPY at its begin");
  const int major = static_cast<unsigned char>(head[6]);
  if (major < 1 || major > 3)
    throw refuse(fmt::format("has NumPy's format version {}, expected 1 to 3", major));
  const int64_t begin = kMagicBytes + (major == 1 ? 2 : 4);
  const int64_t length = major == 1 ? int64_t{loaded<uint16_t>(&head[kMagicBytes])}
                                    : int64_t{loaded<uint32_t>(&head[kMagicBytes])};
  if (length > kMostHeaderBytes || begin + length > bytes) {
    throw refuse(
        fmt::format("has {} bytes and a header of {} bytes: the file is damaged, or is not an "
                    "array of whole numbers",
                    bytes, length));
  }
  std::string dictionary(static_cast<size_t>(length), '\0');
  files.read(file, begin, length, dictionary.data());
  const auto descr = value_of(dictionary, "descr"), shape = value_of(dictionary, "shape"),
             order = value_of(dictionary, "fortran_order");
  if (!descr || !shape || !order)
    throw refuse("has a NumPy header without descr, fortran_order and shape");
  const auto type = type_of(*descr);
  if (!type) {
    throw refuse(
        fmt::format("holds elements of type {}, expected little-endian whole numbers: save the "
                    "array as array.astype('<i4')",
                    text::printable(*descr)));
  }
  const auto elements = one_dimension(*shape);
  if (!elements) {
    throw refuse(
        fmt::format("has the shape {}, expected one dimension: save the array as array.reshape(-1)",
                    text::printable(*shape)));
  }
  const NpyHeader header{begin + length, *type, *elements};
  const int64_t room = (bytes - header.begin) / bytes_of(*type);
  if (*elements != room || (bytes - header.begin) % bytes_of(*type) != 0) {
    throw refuse(fmt::format(
        "has {} elements of {} by its header, but {} bytes behind the header: the file is damaged",
        *elements, name_of(*type), bytes - header.begin));
  }
  return header;
}

}  // namespace smp::data
