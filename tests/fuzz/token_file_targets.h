#pragma once

#include <string>

// Files of tokens, whose bytes are anything: the readers of smp/plan/data.
namespace smp::fuzz {

void read_megatron_data(const std::string& text);  // an index, and its last 64 bytes as the tokens
void read_llmc_data(const std::string& text);
void read_npy_data(const std::string& text);
void read_nanogpt_data(const std::string& text);
void read_data_manifest(const std::string& text);  // beside an index that is right
void read_data_mask(const std::string& text);      // of 32 tokens
void read_data_labels(const std::string& text);    // likewise, NumPy's

}  // namespace smp::fuzz
