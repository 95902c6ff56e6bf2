#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "completion.h"

namespace smp {
namespace {

constexpr const char* kCompletionDescription =
    R"(Prints a completion script for a shell.

Examples:
  source <(smp-plan completion bash)
  smp-plan completion zsh > "${fpath[1]}/_smp-plan"
  smp-plan completion fish > ~/.config/fish/completions/smp-plan.fish
)";

}  // namespace

void add_completion_command(CLI::App& app, Run& run) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "a completion script for a shell");
  command->description(kCompletionDescription);
  command->add_option("shell", *shell, "bash, zsh or fish");
  // The script is made while the options still exist: they are gone when the command runs.
  command->callback([shell, &app, &run] {
    try {
      run = [text = completion_script(app, "smp-plan", *shell)] {
        std::fputs(text.c_str(), stdout);
        return ExitCode::kOk;
      };
    } catch (const UnknownShell& error) {
      throw UsageError(error.what());
    }
  });
}

}  // namespace smp
