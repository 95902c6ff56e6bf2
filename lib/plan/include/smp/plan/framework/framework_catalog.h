#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/framework/framework.h"

// The framework files of configs/frameworks, which are compiled into the program, and those that a
// user writes. A job file says `framework: deepspeed` or `framework: mine.yaml`. Any thread.
namespace smp::framework {

struct NamedFramework {
  std::string_view name;
  std::string_view text;  // the file, as it lies in configs/frameworks
};

// Sorted by name.
std::span<const NamedFramework> named_frameworks();
// Null when there is none of that name.
const NamedFramework* find_framework(std::string_view name);
// "unknown framework 'fsdp', did you mean 'fsdp2'? Known frameworks: deepspeed, ..."
std::string unknown_framework(std::string_view name);
// A word with a '/' or with .yaml at its end is the path of a file, every other one a name.
bool is_framework_path(std::string_view word);

// What the shipped file of that name says, which is read once. Null when there is none.
std::shared_ptr<const Framework> shipped_framework(std::string_view name);

// "unknown" stands for a framework that nobody names: a layout is priced as each shipped framework
// that offers it and of which runs are published without its name.
inline constexpr std::string_view kUnknownFramework = "unknown";
inline bool is_unknown(const FrameworkChoice& choice) { return choice.name == kUnknownFramework; }
std::vector<FrameworkChoice> possible_frameworks();

// The framework that a command line names; an unknown one has no habits. Throws ConfigError:
// unknown name, no such file, or all mistakes of the file.
FrameworkChoice framework_named(const std::string& name_or_path);

// The framework of the job. Throws ConfigError if the job names a file that was not read, as a plan
// does.
const Framework& framework_without_habits(const JobSpec& job);
inline const Framework& framework_of(const JobSpec& job) {
  const Framework* habits = job.parallel.framework.habits.get();
  return habits != nullptr ? *habits : framework_without_habits(job);
}
inline const FrameworkModel& framework_model(const JobSpec& job) { return framework_of(job).model; }

}  // namespace smp::framework
