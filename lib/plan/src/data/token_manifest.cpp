#include "token_manifest.h"

#include <fmt/format.h>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"
#include "token_types.h"

namespace smp::data {
namespace {

constexpr int64_t kMostManifestBytes = 64 << 20;  // of the list of its sources

// One key after the other of a manifest, whose mistakes are refused with the path.
class ManifestReader {
 public:
  ManifestReader(const text::Json& json, const std::string& path, const std::string& key)
      : json_(json), path_(path), key_(key) {}

  ConfigError refused(const std::string& what) const {
    return ConfigError(fmt::format("{}: {}: {}", key_, path_, what));
  }
  const text::Json& value(const char* name) const {
    if (!json_.contains(name)) throw refused(fmt::format("the key {} is missing", name));
    return json_.at(name);
  }
  int64_t whole(const char* name) const {
    const text::Json& found = value(name);
    if (!found.is_number_integer() || found.get<int64_t>() < 0)
      throw refused(fmt::format("{} must be a whole number of at least 0", name));
    return found.get<int64_t>();
  }
  std::string text(const char* name) const {
    const text::Json& found = value(name);
    if (!found.is_string()) throw refused(fmt::format("{} must be a text", name));
    return found.get<std::string>();
  }

 private:
  const text::Json& json_;
  const std::string& path_;
  const std::string& key_;
};

}  // namespace

TokenManifest read_token_manifest(const std::string& path, const std::string& key,
                                  OpenFiles& files) {
  const size_t file = files.add(path, key);
  const auto refused = [&](const std::string& what) {
    return ConfigError(fmt::format("{}: {}: {}", key, path, what));
  };
  if (files.bytes(file) > kMostManifestBytes)
    throw refused(
        fmt::format("the file has {} bytes, more than a manifest can have", files.bytes(file)));
  std::string text(static_cast<size_t>(files.bytes(file)), '\0');
  files.read(file, 0, files.bytes(file), text.data());
  text::Json json;
  try {
    json = text::Json::parse(text);
  } catch (const text::Json::exception&) {
    throw refused("the file is not valid JSON");
  }
  const ManifestReader reader(json, path, key);
  if (!json.is_object() || reader.text("format") != "smp-data")
    throw refused("the file is not a manifest of smp-data");
  if (const int64_t version = reader.whole("version"); version != 1)
    throw refused(fmt::format("the manifest has version {}, expected version 1", version));
  TokenManifest manifest;
  manifest.path = path;
  const text::Json& tokenizer = reader.value("tokenizer");
  if (tokenizer.is_object() && tokenizer.contains("name") && tokenizer.at("name").is_string())
    manifest.tokenizer = tokenizer.at("name").get<std::string>();
  manifest.vocab_size = reader.whole("vocab_size");
  if (!reader.value("end_of_document").is_null())
    manifest.end_of_document = reader.whole("end_of_document");
  const std::string dtype = reader.text("dtype");
  if (dtype != "uint16" && dtype != "int32") throw refused("dtype must be uint16 or int32");
  manifest.type = dtype == "uint16" ? TokenType::kU16 : TokenType::kI32;
  manifest.tokens = reader.whole("tokens");
  manifest.documents = reader.whole("documents");
  manifest.longest_document = reader.whole("longest_document");
  const text::Json& mask = reader.value("has_mask");
  if (!mask.is_boolean()) throw refused("has_mask must be true or false");
  manifest.has_mask = mask.get<bool>();
  return manifest;
}

void check_manifest_fits(const TokenManifest& manifest, const TokenFile& tokens,
                         const std::string& key) {
  const int64_t documents = tokens.index ? tokens.index->documents : manifest.documents;
  if (manifest.tokens == tokens.tokens && manifest.documents == documents &&
      manifest.type == tokens.type) {
    return;
  }
  throw ConfigError(
      fmt::format("{}: {} describes {} tokens of {} in {} documents, but the files beside it have "
                  "{} of {} in {}: the manifest belongs to another corpus",
                  key, manifest.path, manifest.tokens, name_of(manifest.type), manifest.documents,
                  tokens.tokens, name_of(tokens.type), documents));
}

}  // namespace smp::data
