#include "smp/launcher/environment/variables.h"

#include <fmt/format.h>

#include <charconv>

#include "smp/plan/base/errors.h"

namespace smp::environment {

std::string_view name_in(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::optional<std::string> value_in(const std::vector<std::string>& environment,
                                    const std::string& name) {
  for (const std::string& variable : environment) {
    if (variable.starts_with(name) && variable.size() > name.size() && variable[name.size()] == '=')
      return variable.substr(name.size() + 1);
  }
  return std::nullopt;
}

int number_in(const std::vector<std::string>& environment, const char* name, int least, int most) {
  const std::optional<std::string> text = value_in(environment, name);
  if (!text)
    throw ConfigError(
        fmt::format("{} is not set, but other variables of the same launcher are", name));
  int number = 0;
  const char* last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, number);
  if (error != std::errc{} || end != last || number < least)
    throw ConfigError(fmt::format("{}='{}': expected a whole number", name, *text));
  if (number > most)
    throw ConfigError(fmt::format("{}='{}': expected at most {}", name, *text, most));
  return number;
}

}  // namespace smp::environment
