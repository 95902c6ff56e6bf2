#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "smp/plan/base/exit_code.h"

namespace CLI {
class App;
}

namespace smp {

// A command line that makes no sense: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the command line asks for. Each add_... declares one command, its options and its examples,
// and sets `run` when the command line names it. One file each.
using Run = std::function<ExitCode()>;

// Checks of an option's value: "", or what is wrong.
std::string not_empty(const std::string& value);
std::string above_zero(const std::string& value);

void add_plan_command(CLI::App& app, Run& run);  // the program itself: smp-plan model.yaml
void add_calibrate_command(CLI::App& app, Run& run);
void add_compare_command(CLI::App& app, Run& run);
void add_check_command(CLI::App& app, Run& run);
void add_completion_command(CLI::App& app, Run& run);
void add_export_command(CLI::App& app, Run& run);
void add_frameworks_command(CLI::App& app, Run& run);
void add_groups_command(CLI::App& app, Run& run);
void add_import_command(CLI::App& app, Run& run);
void add_import_nccl_tests_command(CLI::App& import_command, Run& run);  // below import
void add_init_command(CLI::App& app, Run& run);
void add_layers_command(CLI::App& app, Run& run);
void add_models_command(CLI::App& app, Run& run);
void add_schedule_command(CLI::App& app, Run& run);
void add_schema_command(CLI::App& app, Run& run);
void add_score_command(CLI::App& app, Run& run);

}  // namespace smp
