#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/text/diagnostics.h"

// The values of a Python script (python_script.h).
namespace smp::pyscript {

struct PythonValue;

struct PythonEntry {
  std::string key;
  text::Place place;
  PythonValue* value = nullptr;
};

struct PythonValue {
  enum class Kind { kNone, kBool, kWhole, kNumber, kText, kList, kMap, kCall, kUnknown };

  Kind kind = Kind::kUnknown;
  text::Place place;
  int64_t whole = 0;  // of a bool: 0 or 1
  double number = 0;
  std::string text;                  // of a call: what is called; of an unknown value: why
  bool is_tuple = false;             // of a list
  std::vector<PythonValue*> items;   // of a list; of a call: its arguments without a name
  std::vector<PythonEntry> entries;  // of a map; of a call: its arguments by name

  PythonValue* find(std::string_view key) const;  // nullptr when there is none
};

// A call in lines that are not read, such as those of a function.
struct UnreadCall {
  std::string name;
  text::Place place;
  std::string block;  // the word that begins the block: "def", "if", ...
};

struct PythonScript {
  std::deque<PythonValue> values;             // all of them: names and values share lists and maps
  std::map<std::string, PythonValue*> names;  // as they are after the last line
  std::vector<PythonValue*> calls;            // that are read
  std::vector<UnreadCall> unread;
  PythonValue* last = nullptr;  // of the last line that only says a value
};

}  // namespace smp::pyscript
