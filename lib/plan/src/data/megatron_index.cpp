#include "megatron_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/number_text.h"
#include "token_types.h"

namespace smp::data {
namespace {

constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
constexpr int64_t kIndexHeaderBytes = 34;
constexpr int64_t kMostLookedAt = 64;  // pointers at the start

struct Offsets {
  int64_t lengths, pointers, documents;
};

Offsets offsets_of(const MegatronIndex& index) {
  const int64_t pointers = kIndexHeaderBytes + 4 * index.sequences;
  return {kIndexHeaderBytes, pointers, pointers + 8 * index.sequences};
}

template <typename T>
std::vector<T> numbers_at(const OpenFiles& files, size_t file, int64_t offset, int64_t count) {
  std::vector<T> numbers(static_cast<size_t>(count));
  files.read(file, offset, count * static_cast<int64_t>(sizeof(T)), numbers.data());
  return numbers;
}

// First token of a sequence; that of the one behind the last is the number of tokens.
int64_t begin_of_sequence(const MegatronIndex& index, int64_t sequence, int64_t pointer,
                          int64_t tokens, const OpenFiles& files) {
  const int64_t size = bytes_of(index.type);
  if (pointer % size == 0 && pointer >= 0 && pointer / size <= tokens) return pointer / size;
  throw std::runtime_error(
      fmt::format("{}: sequence {} begins at byte {}, but the corpus has {} tokens of {} bytes: "
                  "the index is damaged, or belongs to another corpus",
                  files.path(index.file), sequence, pointer, tokens, size));
}

TokenType type_of_code(int code, const std::string& path, const std::string& key) {
  switch (code) {
    case 1: return TokenType::kU8;
    case 2: return TokenType::kI8;
    case 3: return TokenType::kI16;
    case 4: return TokenType::kI32;
    case 5: return TokenType::kI64;
    case 8: return TokenType::kU16;
    case 6:
    case 7:
      throw ConfigError(
          fmt::format("{}: {} holds {} (type code {}), but tokens must be whole numbers", key, path,
                      code == 6 ? "float64" : "float32", code));
    default:
      throw ConfigError(fmt::format(
          "{}: {} has the type code {}, expected one of Megatron's, 1 to 8", key, path, code));
  }
}

void check_index_size(const MegatronIndex& index, const std::string& path, const std::string& key,
                      const OpenFiles& files) {
  const int64_t bytes = files.bytes(index.file);
  const text::Int128 whole = kIndexHeaderBytes + text::Int128{12} * index.sequences +
                             text::Int128{8} * index.documents + 8;
  if (whole == bytes) return;
  if (whole + index.sequences == bytes) {
    throw ConfigError(fmt::format(
        "{}: {} has modes of its {} sequences: the corpus is multimodal, expected tokens of text",
        key, path, index.sequences));
  }
  throw ConfigError(
      fmt::format("{}: {} has {} sequences and {} documents, which need {} bytes, but has {} "
                  "bytes: the index is damaged",
                  key, path, index.sequences, index.documents, text::wide_text(whole), bytes));
}

// At places spread over the index each sequence ends where the next one begins, and the last one
// where the tokens end.
void check_pointers(const MegatronIndex& index, size_t bin, const std::string& key,
                    const OpenFiles& files) {
  const auto [lengths, pointers, documents] = offsets_of(index);
  const std::string &path = files.path(index.file), &tokens = files.path(bin);
  const int64_t size = bytes_of(index.type);
  const int64_t places = std::min(index.sequences, kMostLookedAt);
  for (int64_t i = 0; i < places; ++i) {
    const int64_t at =
        places == 1 ? 0
                    : static_cast<int64_t>(text::Int128{index.sequences - 1} * i / (places - 1));
    const bool is_last = at + 1 == index.sequences;
    const auto length = numbers_at<int32_t>(files, index.file, lengths + 4 * at, 1)[0];
    const auto begins = numbers_at<int64_t>(files, index.file, pointers + 8 * at, is_last ? 1 : 2);
    const text::Int128 end = text::Int128{begins[0]} + text::Int128{length} * size;
    const int64_t next = is_last ? files.bytes(bin) : begins[1];
    const bool starts_right = at > 0 || begins[0] == 0;
    if (length >= 0 && begins[0] >= 0 && end == next && starts_right) continue;
    throw ConfigError(fmt::format(
        "{}: {} does not match {}: sequence {} of {} tokens of {} bytes begins at byte {} and ends "
        "at {}, expected {}: one of the two files is damaged or belongs to another corpus",
        key, path, tokens, at, length, size, begins[0], text::wide_text(end), next));
  }
  const auto first = numbers_at<int64_t>(files, index.file, documents, 1)[0];
  const auto last = numbers_at<int64_t>(files, index.file, documents + 8 * index.documents, 1)[0];
  if (first == 0 && last == index.sequences) return;
  throw ConfigError(fmt::format(
      "{}: {} has documents from sequence {} to {}, but {} sequences: the index is damaged", key,
      path, first, last, index.sequences));
}

}  // namespace

MegatronIndex open_megatron_index(const std::string& path, size_t tokens, const std::string& key,
                                  OpenFiles& files) {
  MegatronIndex index;
  index.file = files.add(path, key);
  const int64_t bytes = files.bytes(index.file);
  std::array<char, kIndexHeaderBytes> header{};
  if (bytes >= kIndexHeaderBytes) files.read(index.file, 0, kIndexHeaderBytes, header.data());
  if (!std::string_view(header.data(), header.size()).starts_with(kMegatronMagic)) {
    throw ConfigError(
        fmt::format("{}: {} is not a Megatron index: expected MMIDIDX at its begin", key, path));
  }
  const auto version = loaded<uint64_t>(&header[9]);
  if (version != 1)
    throw ConfigError(fmt::format("{}: {} has version {}, expected version 1", key, path, version));
  index.type = type_of_code(static_cast<unsigned char>(header[17]), path, key);
  const auto sequences = loaded<uint64_t>(&header[18]), ends = loaded<uint64_t>(&header[26]);
  if (ends <= 1) {
    throw ConfigError(
        fmt::format("{}: {} has no documents: its builder did not mark where a document ends; "
                    "build the index again",
                    key, path));
  }
  constexpr uint64_t kMost = uint64_t{1} << 58;  // whose bytes are no number of 64 bits
  if (sequences > kMost || ends > kMost) {
    throw ConfigError(
        fmt::format("{}: {} has {} sequences and {} documents in its header: the index is damaged",
                    key, path, sequences, ends - 1));
  }
  index.sequences = static_cast<int64_t>(sequences);
  index.documents = static_cast<int64_t>(ends) - 1;
  check_index_size(index, path, key, files);
  const int64_t size = bytes_of(index.type), content = files.bytes(tokens);
  if (content % size != 0) {
    throw ConfigError(fmt::format(
        "{}: {} has {} bytes, which is not a whole number of tokens of {}, {} bytes each (by {})",
        key, files.path(tokens), content, name_of(index.type), size, path));
  }
  check_pointers(index, tokens, key, files);
  return index;
}

std::vector<int64_t> document_begins(const MegatronIndex& index, int64_t first, int64_t count,
                                     int64_t tokens, const OpenFiles& files) {
  const auto [lengths, pointers, documents] = offsets_of(index);
  std::vector<int64_t> begins =
      numbers_at<int64_t>(files, index.file, documents + 8 * first, count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sequence = begins[static_cast<size_t>(i)];
    const int64_t before = i == 0 ? 0 : begins[static_cast<size_t>(i - 1)];
    if (sequence >= before && sequence <= index.sequences) continue;
    throw std::runtime_error(
        fmt::format("{}: document {} begins at sequence {}, after sequence {} and of {} sequences: "
                    "the index is damaged",
                    files.path(index.file), first + i, sequence, before, index.sequences));
  }
  const int64_t from = begins.front();
  const int64_t to = std::min(begins.back() + 1, index.sequences);
  // Nearly always a document is a sequence: all pointers lie together.
  std::vector<int64_t> together;
  if (to - from <= 4 * count + 64 && to > from)
    together = numbers_at<int64_t>(files, index.file, pointers + 8 * from, to - from);
  for (int64_t& begin : begins) {
    const int64_t sequence = begin;
    if (sequence == index.sequences) {
      begin = tokens;
      continue;
    }
    const int64_t pointer =
        together.empty() ? numbers_at<int64_t>(files, index.file, pointers + 8 * sequence, 1)[0]
                         : together[static_cast<size_t>(sequence - from)];
    begin = begin_of_sequence(index, sequence, pointer, tokens, files);
  }
  for (size_t i = 1; i < begins.size(); ++i) {
    if (begins[i] >= begins[i - 1]) continue;
    throw std::runtime_error(fmt::format(
        "{}: document {} begins at token {}, before the previous document, at {}: the index is "
        "damaged",
        files.path(index.file), first + static_cast<int64_t>(i), begins[i], begins[i - 1]));
  }
  return begins;
}

int64_t document_of_token(const MegatronIndex& index, int64_t token, int64_t tokens,
                          const OpenFiles& files) {
  constexpr int64_t kWindow = 64;  // documents that one look sees
  constexpr int kMiddleEvery = 4;  // looks: of a corpus whose documents grow, say
  // The last document that begins at the token or before it: empty ones lie in front of it.
  // Documents are much alike in length nearly everywhere, so a look at the place that the token's
  // share of the tokens gives, and around it, leaves far fewer than one in the middle does.
  int64_t low = 0, high = index.documents, low_begin = 0, high_begin = tokens;
  for (int look = 1; high - low > 1; ++look) {
    const int64_t between = high - low;
    const text::Int128 before =
        text::Int128{between} * (token - low_begin) / std::max<int64_t>(1, high_begin - low_begin);
    const int64_t guess =
        low + (look % kMiddleEvery == 0 ? between / 2 : static_cast<int64_t>(before));
    const int64_t first =
        std::clamp(guess - kWindow / 2, low + 1, std::max(low + 1, high - kWindow));
    const std::vector<int64_t> begins =
        document_begins(index, first, std::min(kWindow, high - first), tokens, files);
    const auto behind = std::upper_bound(begins.begin(), begins.end(), token);
    const int64_t place = first + (behind - begins.begin());
    if (behind != begins.begin()) {
      low = place - 1;
      low_begin = *(behind - 1);
    }
    if (behind != begins.end()) {
      high = place;
      high_begin = *behind;
    }
  }
  return low;
}

}  // namespace smp::data
