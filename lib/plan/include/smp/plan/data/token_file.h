#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/plan/data/open_files.h"
#include "smp/plan/data/token_file_parts.h"
#include "smp/plan/spec/job_spec.h"

// One file of tokens, and the files beside it. Their writer gives the sizes, and each number is
// checked against the others and against the files' sizes. docs/data.md describes the formats.
namespace smp::data {

// Opens a file of `format` and the files that belong to it; of megatron, `path` is the .bin. `key`
// is the job's key, for messages. Throws ConfigError, with key, path and numbers, if a file is torn
// or the files are inconsistent, and as OpenFiles does.
TokenFile open_token_file(DataFormat format, const std::string& path, const std::string& key,
                          OpenFiles& files);

// The format that the name and the first bytes of a file show. Nothing for a .bin without index and
// header.
std::optional<DataFormat> format_of_file(const std::string& path);

// The loss mask files beside a file of tokens.
std::vector<std::string> masks_beside(const std::string& path);

// The loss mask of `tokens`. Throws ConfigError if there is none, more than one, or one of another
// length.
TokenMask open_token_mask(const TokenFile& tokens, const std::string& key, OpenFiles& files);

// "corpus" of "corpus.bin" and "corpus.npy", else the path.
std::string without_data_suffix(const std::string& path);

}  // namespace smp::data
