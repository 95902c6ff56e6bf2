#pragma once

#include <string>
#include <vector>

// Diagnostics collects every mistake of one reading, in any file, and shows them sorted by place:
// `file:line:column: message`, the line, a caret. Not thread-safe; one per reading.
namespace smp::text {

// Where something stands in a source. Lines and columns (of bytes) count from 1.
struct Place {
  int source = 0;
  int line = 1;
  int column = 1;
};

class Diagnostics {
 public:
  // Returns the number that Place::source refers to. Places in sources without line numbers (one
  // line of a command line) print as `name: message`.
  int add_source(std::string name, std::string text, bool has_line_numbers = true);

  void error(Place place, std::string message);
  bool any() const { return !errors_.empty(); }

  // All errors as a user sees them, without a newline at the end; long lists are cut.
  std::string text() const;
  void raise_if_any() const;  // throws ConfigError(text())

 private:
  struct Source {
    std::string name;
    std::string text;
    bool has_line_numbers;
  };
  struct Error {
    Place place;
    std::string message;
  };
  std::string shown(const Error& error) const;

  std::vector<Source> sources_;
  std::vector<Error> errors_;
};

}  // namespace smp::text
