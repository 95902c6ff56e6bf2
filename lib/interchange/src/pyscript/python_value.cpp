#include "pyscript/python_value.h"

#include <algorithm>

namespace smp::pyscript {

PythonValue* PythonValue::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &PythonEntry::key);
  return found != entries.end() ? found->value : nullptr;
}

}  // namespace smp::pyscript
