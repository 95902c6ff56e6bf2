#pragma once

#include <span>
#include <string>
#include <string_view>

#include "pyscript/python_value.h"
#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/yaml_tree.h"

// The values of the names in a Python script, without running it. It reads assignments, also to
// items of dictionaries, update(), and expressions of literals, names, lists, tuples, dictionaries,
// dict(), int(), float(), indices and arithmetic. Other code (functions, conditions, loops,
// comprehensions, f-strings) gives unknown values, with place and reason. An unknown value is an
// error only if it is needed. Not thread-safe per Diagnostics.
namespace smp::pyscript {

// Reads source `source` of `diagnostics`, whose text is `text`. Text that is not Python is an
// error.
PythonScript read_python(std::string_view text, int source, text::Diagnostics& diagnostics);

// The value of `name` as a document, with an error for each unknown part. Keys of `unread` may have
// any value: they are present, and empty.
text::YamlNode document_of(const PythonValue& value, const std::string& name,
                           std::span<const std::string_view> unread,
                           text::Diagnostics& diagnostics);

}  // namespace smp::pyscript
