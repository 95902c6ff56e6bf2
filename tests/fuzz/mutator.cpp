#include "fuzz/mutator.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace smp::fuzz {
namespace {

constexpr size_t kLongest = 1 << 16;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Numbers at which arithmetic and readers tend to break.
constexpr const char* kNumbers[] = {"0",
                                    "1",
                                    "-1",
                                    "2",
                                    "7",
                                    "13",
                                    "1000003",
                                    "65536",
                                    "1048576",
                                    "268435456",
                                    "2147483647",
                                    "2147483648",
                                    "4294967296",
                                    "9007199254740993",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "18446744073709551616",
                                    "1e308",
                                    "1e-320",
                                    "1e999",
                                    "-0.0",
                                    "0.1",
                                    ".nan",
                                    "NaN",
                                    ".inf",
                                    "1e15",
                                    "40GiB",
                                    "4Mi",
                                    "0x10",
                                    "010",
                                    "\"4\"",
                                    "null",
                                    "true",
                                    "auto"};
constexpr const char* kPieces[] = {": ",   "- ",  "{",  "}",  "[",        "]",    ",", "\"", "'",
                                   "\n",   "  ",  "\t", "#",  "&a",       "*a",   "|", ">",  "\\",
                                   "\r\n", "---", "!!", "<<", "\x00\x01", "\xff", "é", "=",  "%"};

// [begin, end) of the run of characters around `at` for which `belongs` holds.
template <class Belongs>
std::pair<size_t, size_t> run_around(const std::string& text, size_t at, Belongs belongs) {
  while (at < text.size() && !belongs(text[at])) ++at;
  size_t begin = at;
  while (begin > 0 && belongs(text[begin - 1])) --begin;
  while (at < text.size() && belongs(text[at])) ++at;
  return {begin, at};
}

}  // namespace

Mutator::Mutator(std::vector<std::string> corpus, uint64_t seed)
    : corpus_(std::move(corpus)), engine_(seed) {
  if (corpus_.empty()) corpus_.emplace_back();
  std::set<std::string> words;
  for (const std::string& text : corpus_) {
    for (size_t at = 0; at < text.size();) {
      const auto [begin, end] = run_around(text, at, is_word);
      if (begin < end && end - begin < 64) words.insert(text.substr(begin, end - begin));
      at = std::max(end, at + 1);
    }
  }
  words_.assign(words.begin(), words.end());
}

std::string_view Mutator::some_text() { return corpus_[below(corpus_.size())]; }

std::string Mutator::some_word() { return words_.empty() ? "a" : words_[below(words_.size())]; }

std::string Mutator::next() {
  std::string text(some_text());
  for (uint64_t changes = 1 + below(6); changes > 0; --changes) change(text);
  if (text.size() > kLongest) text.resize(kLongest);
  return text;
}

void Mutator::change(std::string& text) {
  switch (below(8)) {
    case 0:
    case 1: return change_bytes(text);
    case 2:
    case 3: return change_word(text);
    case 4:
    case 5: return change_number(text);
    case 6: return change_lines(text);
    default: return splice(text);
  }
}

void Mutator::change_bytes(std::string& text) {
  const size_t at = below(text.size() + 1);
  switch (below(5)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(below(256));
      return;
    case 1: text.insert(at, kPieces[below(std::size(kPieces))]); return;
    case 2: text.erase(at, 1 + below(16)); return;
    case 3: text.insert(at, 1 + below(40), " [{\"-0"[below(6)]); return;
    default: text.resize(at); return;
  }
}

void Mutator::change_word(std::string& text) {
  const auto [begin, end] = run_around(text, below(text.size() + 1), is_word);
  text.replace(begin, end - begin, some_word());
}

void Mutator::change_number(std::string& text) {
  const auto [begin, end] = run_around(text, below(text.size() + 1), is_digit);
  const std::string number = below(3) == 0
                                 ? std::to_string(static_cast<int64_t>(engine_()) >> below(64))
                                 : kNumbers[below(std::size(kNumbers))];
  text.replace(begin, end - begin, number);
}

void Mutator::change_lines(std::string& text) {
  const size_t at = text.rfind('\n', below(text.size() + 1));
  const size_t begin = at == std::string::npos ? 0 : at + 1;
  const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
  if (begin >= text.size()) return;
  const std::string line = text.substr(begin, end - begin);
  switch (below(3)) {
    case 0: text.erase(begin, end - begin); return;
    case 1: text.insert(begin, line); return;
    default: {
      text.erase(begin, end - begin);
      const size_t to = text.find('\n', below(text.size() + 1));
      text.insert(to == std::string::npos ? text.size() : to + 1, line);
    }
  }
}

void Mutator::splice(std::string& text) {
  const std::string_view other = some_text();
  const size_t from = below(other.size() + 1);
  text.insert(below(text.size() + 1), other.substr(from, below(400)));
}

}  // namespace smp::fuzz
