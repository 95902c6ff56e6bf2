#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "smp/plan/text/suggest.h"

namespace smp {

// For an option whose values have names: takes these, and refuses other words with what was meant.
template <class T>
CLI::Validator named_values(std::map<std::string, T> values) {
  return CLI::Validator(
      [values = std::move(values)](std::string& word) -> std::string {
        if (const auto found = values.find(word); found != values.end()) {
          word = std::to_string(static_cast<int>(found->second));
          return "";
        }
        std::vector<std::string> names;
        for (const auto& [name, value] : values) names.push_back(name);
        const auto near = text::nearest(word, names);
        return near ? fmt::format("unknown '{}', did you mean '{}'?", word, *near)
                    : fmt::format("unknown '{}'; expected one of {}", word, fmt::join(names, ", "));
      },
      "");
}

}  // namespace smp
