#pragma once

#include <string>
#include <vector>

namespace smp {

// As exec takes them: valid as long as the texts are.
inline std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace smp
