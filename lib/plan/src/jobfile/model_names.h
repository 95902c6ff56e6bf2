#pragma once

#include <string>
#include <string_view>

namespace smp::jobfile {

// What is compared of a model's name: without owner, case, and suffixes such as -Instruct;
// separators between two digits are "-", others are nothing: "Qwen/Qwen3-30B-A3B" is
// "qwen3-30ba3b", "Llama-3.1-8B-Instruct" is "llama3-1-8b". Pure; any thread.
std::string compared_name(std::string_view name);

}  // namespace smp::jobfile
