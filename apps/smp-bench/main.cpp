#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "collectives_command.h"
#include "completion.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/system/process_limits.h"
#include "smp/plan/system/standard_streams.h"
#include "smp/plan/text/printable.h"
#include "smp/plan/text/suggest.h"

namespace {

using smp::ExitCode;

constexpr const char* kDescription =
    R"(Measures collectives, networks and data input on the machines that smp trains on.

Examples:
  smp-bench collectives -n 4
  smp-bench data plan.yaml
  smp-bench host
  smp-launch -n 4 -- smp-bench collectives --ops all_gather
  source <(smp-bench completion bash)
)";

int say(const std::string& text, ExitCode code) {
  fmt::print(stderr, "smp-bench: {}\n", smp::text::printable(text));
  return static_cast<int>(code);
}

int usage(const std::string& text) {
  say(text, ExitCode::kUsage);
  fmt::print(stderr, "smp-bench --help shows examples\n");
  return static_cast<int>(ExitCode::kUsage);
}

// Where a command is missing, the first word may be a mistyped one.
std::string what_is_missing(const CLI::App& app, const std::string& word, const std::string& said) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  if (word.empty() || word[0] == '-' || std::find(names.begin(), names.end(), word) != names.end())
    return said;
  const auto near = smp::text::nearest(word, names);
  return fmt::format("unknown command '{}'{}", word,
                     near ? fmt::format(", did you mean '{}'?", *near) : "");
}

int run(int argc, char** argv) {
  CLI::App app(kDescription);
  smp::BenchRun run;
  app.set_version_flag("--version", "smp-bench 0.1.0");
  app.require_subcommand(1);
  smp::add_collectives_command(app, run);
  smp::add_exchanges_command(app, run);
  smp::add_data_command(app, run);
  smp::add_host_command(app, run);
  std::string shell;
  CLI::App* completion = app.add_subcommand("completion", "print a completion script for a shell");
  completion->add_option("shell", shell, "shell: bash, zsh or fish")->required();
  try {
    smp::system::check_limits({.stack_bytes = smp::system::kLeastStackBytes, .open_files = 0});
    app.parse(argc, argv);
    if (!shell.empty()) {
      fmt::print("{}", smp::completion_script(app, "smp-bench", shell));
      return 0;
    }
    return run();
  } catch (const CLI::Success& information) {
    return app.exit(information);
  } catch (const CLI::RequiredError& error) {
    return usage(what_is_missing(app, argc > 1 ? argv[1] : "", error.what()));
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  } catch (const smp::UnknownShell& error) {
    return usage(error.what());
  } catch (const smp::ConfigError& error) {
    return say(error.what(), ExitCode::kBadConfig);
  } catch (const std::exception& error) {
    return say(error.what(), ExitCode::kFailure);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_heard = smp::system::fill_standard_streams();
  const int code = run(argc, argv);
  if (is_heard && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "smp-bench: standard output could not be written in full\n");
  return static_cast<int>(ExitCode::kFailure);
}
