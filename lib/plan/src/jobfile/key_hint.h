#pragma once

#include <string>
#include <string_view>
#include <vector>

// The likely meaning of an unknown key: a key of the same section, a key or section elsewhere, or
// another program's word for one. Pure; safe from any thread.
namespace smp::jobfile {

struct KeyHint {
  std::string words;  // that follow the complaint
  std::string path;   // of the key that was meant, if it belongs where the unknown one stands
};
KeyHint key_hint(std::string_view section, const std::string& key);

std::vector<std::string> keys_of(std::string_view section);  // and the sections within it
std::string comma_list(const std::vector<std::string>& words);
std::string where(std::string_view section);  // "in model", "at the top level"

}  // namespace smp::jobfile
