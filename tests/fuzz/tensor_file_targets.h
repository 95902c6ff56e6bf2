#pragma once

#include <string>

// Readers of files of tensors, on texts that nobody wrote. One thread.
namespace smp::fuzz {

void read_safetensors(const std::string& text);  // the text is a header
void read_manifest(const std::string& text);     // sealed with a hash that fits
void read_hf_config(const std::string& text);
void read_hf_index(const std::string& text);

}  // namespace smp::fuzz
