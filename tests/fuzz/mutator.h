#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

// Changes texts at random, with a seed: bytes, whole words and numbers, lines, and pieces of other
// texts of the corpus. The same seed gives the same texts on every machine. Not thread-safe.
namespace smp::fuzz {

class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, uint64_t seed);

  std::string next();

 private:
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : engine_() % bound; }
  std::string_view some_text();
  std::string some_word();
  void change(std::string& text);
  void change_bytes(std::string& text);
  void change_word(std::string& text);
  void change_number(std::string& text);
  void change_lines(std::string& text);
  void splice(std::string& text);

  std::vector<std::string> corpus_;
  std::vector<std::string> words_;  // of all texts
  std::mt19937_64 engine_;
};

}  // namespace smp::fuzz
