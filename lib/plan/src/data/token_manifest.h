#pragma once

#include <string>

#include "smp/plan/data/open_files.h"
#include "smp/plan/data/token_file_parts.h"

namespace smp::data {

// Throws ConfigError, with path and key, if a key is missing or has another type or version.
TokenManifest read_token_manifest(const std::string& path, const std::string& key,
                                  OpenFiles& files);

// Throws ConfigError if the manifest does not belong to the tokens and their index.
void check_manifest_fits(const TokenManifest& manifest, const TokenFile& tokens,
                         const std::string& key);

}  // namespace smp::data
