#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/text/diagnostics.h"

// Python's text as logical lines of tokens. Pure except for the Diagnostics.
namespace smp::pyscript {

struct PythonToken {
  enum class Kind { kName, kNumber, kText, kSign };

  Kind kind = Kind::kSign;
  text::Place place;
  std::string text;       // of a text: what it stands for
  bool computed = false;  // an f-string, or bytes
  size_t begin = 0;       // in the source
  size_t end = 0;
};

struct PythonLine {
  int indent = 0;
  std::vector<PythonToken> tokens;  // never empty
};

// Comments, and lines of notebooks that begin with % or !, are left out. Lines inside brackets are
// joined, and ';' ends a line. Text that cannot be read is an error, and ends the reading.
std::vector<PythonLine> python_lines(std::string_view text, int source,
                                     text::Diagnostics& diagnostics);

}  // namespace smp::pyscript
