#pragma once

#include <string>
#include <string_view>
#include <vector>

// Which variables of smp-launch's own environment the ranks of other hosts get. Pure functions.
namespace smp::environment {

struct ForwardRules {
  bool all = false;                // --env-all
  std::vector<std::string> named;  // --env, --env-file: "NAME=value" sets, "NAME" forwards
};

// Those that go to other hosts by themselves:
//   PATH LD_LIBRARY_PATH VIRTUAL_ENV PYTHON* NCCL_* FI_* UCX_* GLOO_* TORCH_* SMP_* OMP_* KMP_*
//   MKL_* CUDA_*
// With `all`, everything but what belongs to a login on this host (HOSTNAME, SSH_*, XDG_*,
// DISPLAY). Never those that look secret (*SECRET*, *TOKEN*, *PASSWORD*, AWS_*), unless they are
// named. Throws ConfigError when a named one is not set.
std::vector<std::string> forwarded_variables(const std::vector<std::string>& own,
                                             const ForwardRules& rules);

// What `named` says alone, for ranks that inherit everything: "NAME=value" each.
std::vector<std::string> named_variables(const std::vector<std::string>& own,
                                         const std::vector<std::string>& named);

// A file of variables, one a line, as in --env; '#' begins a line of comment. The value is what
// stands behind '=', as it stands there. Throws ConfigError with file:line:column.
std::vector<std::string> parse_env_file(const std::string& name, std::string_view text);

// "NAME" or "NAME=value": throws ConfigError, with `option`, when the name is none.
void check_variable(const std::string& option, const std::string& text);

// A variable whose value nobody should see: *SECRET*, *TOKEN*, *PASSWORD*, AWS_*.
bool looks_secret(std::string_view name);

// '*' stands for any characters.
bool matches_glob(std::string_view text, std::string_view pattern);

}  // namespace smp::environment
