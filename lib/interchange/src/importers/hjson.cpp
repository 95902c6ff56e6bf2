#include "importers/hjson.h"

#include <algorithm>

namespace smp::importers {

std::string json_of_hjson(std::string_view text) {
  std::string out(text);
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (out[i] != '\n' && out[i] != '\r') out[i] = ' ';
    }
  };
  size_t comma = out.size();  // the last one behind which nothing stands yet
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"' && text[i] != '\n'; ++i) {
        if (text[i] == '\\') ++i;
      }
      i = std::min(i + 1, text.size());
      comma = out.size();
    } else if (text[i] == '#' || rest.starts_with("//")) {
      const size_t end = std::min(rest.find('\n'), rest.size()) + i;
      blank(i, end);
      i = end;
    } else if (rest.starts_with("/*")) {
      const size_t close = rest.find("*/", 2);
      const size_t end = close == rest.npos ? i + 1 : i + close + 2;
      if (close != rest.npos) blank(i, end);
      i = end;
    } else {
      const char c = text[i];
      if ((c == '}' || c == ']') && comma < out.size()) out[comma] = ' ';
      if (c == ',') {
        comma = i;
      } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
        comma = out.size();
      }
      ++i;
    }
  }
  return out;
}

}  // namespace smp::importers
