#pragma once

#include <string>
#include <string_view>

namespace smp::jobfile {

// What is compared of a model's name: "Qwen/Qwen3-30B-A3B" is "qwen3-30ba3b",
// "Llama-3.1-8B-Instruct" is "llama3-1-8b". Owner, case and suffixes such as -Instruct are left
// out. Separators are left out too, but between two digits, where each is "-". The words of a class
// of NeMo or Megatron-Bridge (Llama3Config8B) are a separator. Pure; any thread.
std::string compared_name(std::string_view name);

}  // namespace smp::jobfile
