#pragma once

#include <exception>
#include <fstream>
#include <iterator>
#include <string>

namespace smp {

// All bytes of a file; none where there is no such file.
inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What body() throws, in its own words.
template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace smp
