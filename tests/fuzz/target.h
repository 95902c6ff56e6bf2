#pragma once

#include <string>
#include <string_view>
#include <vector>

// What a fuzzer feeds: a reader of ours that takes any bytes. It either reads them or throws a
// ConfigError that explains them; anything else (another exception, a crash, a sanitizer's report,
// a broken property, a second of work) is a failure of ours.
namespace smp::fuzz {

struct Target {
  const char* name;
  void (*run)(const std::string& text);
  // Folders and files below the source folder whose files are what the mutations start from. A
  // cases file (KIND.cases) gives the job of each of its cases.
  std::vector<const char*> corpus;
};

// Thrown by a target whose property does not hold for the text.
struct PropertyBroken {
  std::string what;
};

const std::vector<Target>& targets();

}  // namespace smp::fuzz
