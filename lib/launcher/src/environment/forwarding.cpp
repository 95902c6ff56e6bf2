#include "smp/launcher/environment/forwarding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "smp/launcher/environment/variables.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/diagnostics.h"

namespace smp::environment {
namespace {

constexpr std::array kForwarded = {"PATH",  "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHON*", "NCCL_*",
                                   "FI_*",  "UCX_*",           "GLOO_*",      "TORCH_*", "SMP_*",
                                   "OMP_*", "KMP_*",           "MKL_*",       "CUDA_*"};
constexpr std::array kSecret = {"*SECRET*", "*TOKEN*", "*PASSWORD*", "AWS_*"};
constexpr std::array kOfThisHost = {"HOSTNAME", "SSH_*", "XDG_*", "DISPLAY"};

template <typename Patterns>
bool matches_any(std::string_view name, const Patterns& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const char* pattern) { return matches_glob(name, pattern); });
}

bool is_name(std::string_view name) {
  return !name.empty() && name.find_first_of(" \t\r\n") == name.npos;
}

}  // namespace

bool matches_glob(std::string_view text, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t skipped = star; skipped <= text.size(); ++skipped) {
    if (matches_glob(text.substr(skipped), rest)) return true;
  }
  return false;
}

bool looks_secret(std::string_view name) { return matches_any(name, kSecret); }

std::vector<std::string> named_variables(const std::vector<std::string>& own,
                                         const std::vector<std::string>& named) {
  std::vector<std::string> variables;
  for (const std::string& one : named) {
    if (one.find('=') != one.npos) {
      variables.push_back(one);
      continue;
    }
    const auto found = std::find_if(own.begin(), own.end(), [&](const std::string& variable) {
      return name_in(variable) == one && variable.size() > one.size();
    });
    if (found == own.end())
      throw ConfigError(
          fmt::format("--env {}: smp-launch's environment does not have this variable; to set a "
                      "value, write --env {}=value",
                      one, one));
    variables.push_back(*found);
  }
  return variables;
}

std::vector<std::string> forwarded_variables(const std::vector<std::string>& own,
                                             const ForwardRules& rules) {
  std::vector<std::string> named = named_variables(own, rules.named);
  std::vector<std::string> variables;
  for (const std::string& variable : own) {
    const std::string_view name = name_in(variable);
    const bool is_named = std::any_of(named.begin(), named.end(),
                                      [&](const std::string& one) { return name_in(one) == name; });
    const bool wanted = rules.all ? !matches_any(name, kOfThisHost) : matches_any(name, kForwarded);
    if (!is_named && wanted && !looks_secret(name)) variables.push_back(variable);
  }
  variables.insert(variables.end(), named.begin(), named.end());
  return variables;
}

void check_variable(const std::string& option, const std::string& text) {
  if (!is_name(name_in(text)))
    throw ConfigError(fmt::format(
        "{} '{}': expected NAME=value, or NAME to pass on smp-launch's value", option, text));
}

std::vector<std::string> parse_env_file(const std::string& name, std::string_view text) {
  text::Diagnostics diagnostics;
  const int source = diagnostics.add_source(name, std::string(text));
  std::vector<std::string> variables;
  int number = 1;
  for (std::string_view rest = text; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    if (!is_name(name_in(line)))
      diagnostics.error({source, number, 1},
                        "expected NAME=value, or NAME to pass on smp-launch's value");
    variables.emplace_back(line);
  }
  diagnostics.raise_if_any();
  return variables;
}

}  // namespace smp::environment
