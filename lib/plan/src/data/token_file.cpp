#include "smp/plan/data/token_file.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "megatron_index.h"
#include "npy_header.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "token_manifest.h"
#include "token_types.h"

namespace smp::data {
namespace {

namespace fs = std::filesystem;

// llm.c, dev/data/data_common.py and llmc/dataloader.h: 256 numbers of 32 bits.
constexpr int64_t kLlmcHeaderBytes = 1024;
constexpr int32_t kLlmcMagic = 20240520;        // version 1, 16 bits a token
constexpr int32_t kLlmcLlama3Magic = 20240801;  // version 7, 32 bits a token
constexpr int32_t kLlmcEvalMagic = 20240522;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

TokenFile open_llmc(const std::string& path, const std::string& key, OpenFiles& files) {
  TokenFile out{.format = DataFormat::kLlmc, .file = files.add(path, key)};
  const int64_t bytes = files.bytes(out.file);
  if (bytes < kLlmcHeaderBytes) {
    throw ConfigError(fmt::format("{}: {} has {} bytes, fewer than the {} bytes of llm.c's header",
                                  key, path, bytes, kLlmcHeaderBytes));
  }
  std::array<int32_t, 3> header{};
  files.read(out.file, 0, sizeof header, header.data());
  const auto [magic, version, tokens] = header;
  if (magic == kLlmcEvalMagic) {
    throw ConfigError(fmt::format(
        "{}: {} holds llm.c's multiple-choice questions (magic {}), not tokens to train on", key,
        path, magic));
  }
  if (magic != kLlmcMagic && magic != kLlmcLlama3Magic) {
    throw ConfigError(fmt::format(
        "{}: {} is not an llm.c file of tokens: its first number is {}, expected {} or {}", key,
        path, magic, kLlmcMagic, kLlmcLlama3Magic));
  }
  const int32_t expected = magic == kLlmcMagic ? 1 : 7;
  if (version != expected) {
    throw ConfigError(
        fmt::format("{}: {} has llm.c's version {}; with magic {}, version {} is expected", key,
                    path, version, magic, expected));
  }
  out.begin = kLlmcHeaderBytes;
  out.type = magic == kLlmcMagic ? TokenType::kU16 : TokenType::kU32;
  out.tokens = tokens;
  const int64_t whole = kLlmcHeaderBytes + out.tokens * bytes_of(out.type);
  if (tokens < 0 || whole != bytes) {
    throw ConfigError(
        fmt::format("{}: {} has {} tokens by its header, {} bytes in all, but {} bytes: the file "
                    "is damaged, or of another version",
                    key, path, tokens, whole, bytes));
  }
  return out;
}

TokenFile open_nanogpt(const std::string& path, const std::string& key, OpenFiles& files) {
  TokenFile out{.format = DataFormat::kNanogpt, .file = files.add(path, key)};
  out.type = TokenType::kU16;
  const int64_t bytes = files.bytes(out.file);
  if (bytes % 2 != 0) {
    throw ConfigError(
        fmt::format("{}: {} has {} bytes, an odd number, but nanoGPT's tokens have 2 bytes each",
                    key, path, bytes));
  }
  out.tokens = bytes / 2;
  return out;
}

TokenFile open_npy(const std::string& path, const std::string& key, OpenFiles& files) {
  TokenFile out{.format = DataFormat::kNpy, .file = files.add(path, key)};
  const NpyHeader header = read_npy_header(out.file, key, files);
  out.begin = header.begin;
  out.type = header.type;
  out.tokens = header.elements;
  return out;
}

TokenFile open_megatron(const std::string& path, const std::string& key, OpenFiles& files) {
  TokenFile out{.format = DataFormat::kMegatron, .file = files.add(path, key)};
  const std::string prefix = without_data_suffix(path);
  out.index = open_megatron_index(prefix + ".idx", out.file, key, files);
  out.type = out.index->type;
  out.tokens = files.bytes(out.file) / bytes_of(out.type);
  const std::string manifest = prefix + ".smp.json";
  if (is_there(manifest)) {
    out.manifest = read_token_manifest(manifest, key, files);
    check_manifest_fits(*out.manifest, out, key);
  }
  return out;
}

TokenFile open_text(const std::string& path, const std::string& key, OpenFiles& files) {
  TokenFile out{.format = DataFormat::kText, .file = files.add(path, key)};
  out.tokens = files.bytes(out.file);
  return out;
}

}  // namespace

std::string without_data_suffix(const std::string& path) {
  for (const char* suffix : {".bin", ".idx", ".npy", ".smp.json"}) {
    if (path.ends_with(suffix)) return path.substr(0, path.size() - std::string(suffix).size());
  }
  return path;
}

TokenFile open_token_file(DataFormat format, const std::string& path, const std::string& key,
                          OpenFiles& files) {
  switch (format) {
    case DataFormat::kText: return open_text(path, key, files);
    case DataFormat::kMegatron: return open_megatron(path, key, files);
    case DataFormat::kNanogpt: return open_nanogpt(path, key, files);
    case DataFormat::kLlmc: return open_llmc(path, key, files);
    case DataFormat::kNpy: return open_npy(path, key, files);
  }
  return {};
}

std::optional<DataFormat> format_of_file(const std::string& path) {
  if (path.ends_with(".npy")) return DataFormat::kNpy;
  if (path.ends_with(".idx") || path.ends_with(".smp.json")) return DataFormat::kMegatron;
  if (!path.ends_with(".bin")) return DataFormat::kText;
  const std::string prefix = without_data_suffix(path);
  if (is_there(prefix + ".idx") || is_there(prefix + ".smp.json")) return DataFormat::kMegatron;
  OpenFiles files;
  const size_t file = files.add(path, "training.data.path");
  if (files.bytes(file) < kLlmcHeaderBytes) return std::nullopt;
  int32_t magic = 0;
  files.read(file, 0, sizeof magic, &magic);
  const bool is_llmc = magic == kLlmcMagic || magic == kLlmcLlama3Magic || magic == kLlmcEvalMagic;
  return is_llmc ? std::optional(DataFormat::kLlmc) : std::nullopt;
}

std::vector<std::string> masks_beside(const std::string& path) {
  const std::string prefix = without_data_suffix(path);
  std::vector<std::string> found;
  for (const char* suffix : {".mask.bin", ".labels.npy", ".labels.bin"}) {
    if (is_there(prefix + suffix)) found.push_back(prefix + suffix);
  }
  return found;
}

TokenMask open_token_mask(const TokenFile& tokens, const std::string& key, OpenFiles& files) {
  const std::string path = files.path(tokens.file);
  const std::string prefix = without_data_suffix(path);
  const std::vector<std::string> found = masks_beside(path);
  if (found.empty()) {
    throw ConfigError(
        fmt::format("training.data.loss_mask: no {}.mask.bin, .labels.npy or .labels.bin exists "
                    "for the tokens of {}",
                    prefix, path));
  }
  if (found.size() > 1) {
    throw ConfigError(
        fmt::format("training.data.loss_mask: {} and {} are both masks of {}: keep one of them",
                    found[0], found[1], path));
  }
  TokenMask mask;
  mask.file = files.add(found[0], key);
  mask.is_labels = !found[0].ends_with(".mask.bin");
  int64_t elements = files.bytes(mask.file);
  if (found[0].ends_with(".npy")) {
    const NpyHeader header = read_npy_header(mask.file, key, files);
    mask.begin = header.begin;
    mask.type = header.type;
    elements = header.elements;
  } else if (mask.is_labels) {
    mask.type = TokenType::kI32;
    elements = elements % 4 == 0 ? elements / 4 : -1;
  }
  if (elements != tokens.tokens) {
    throw ConfigError(
        fmt::format("training.data.loss_mask: {} has {} bytes, expected {} for the {} tokens in "
                    "{}: the mask belongs to other tokens",
                    found[0], files.bytes(mask.file),
                    mask.begin + tokens.tokens * bytes_of(mask.type), tokens.tokens, path));
  }
  return mask;
}

}  // namespace smp::data
