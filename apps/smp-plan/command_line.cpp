#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "smp/plan/text/suggest.h"

namespace smp {
namespace {

constexpr const char* kVersion = "smp-plan 0.1.0\n";

std::string first_sentence(const std::string& text) {
  std::string sentence = text.substr(0, std::min({text.find(".\n"), text.find(". "), text.size()}));
  for (char& c : sentence) c = c == '\n' ? ' ' : c;
  return sentence;
}

// Examples first, then the usual list.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(30); }
  std::string make_usage(const CLI::App*, std::string) const override { return ""; }
  std::string make_positionals(const CLI::App*) const override { return ""; }
  // A command's own help has the rest.
  std::string make_subcommand(const CLI::App* command) const override {
    return fmt::format("  {:<12}{}\n", command->get_name(),
                       first_sentence(command->get_description()));
  }
};

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

[[noreturn]] void refuse(const CLI::App& command, const std::string& word) {
  if (word.size() > 1 && word[0] == '-') {
    const std::string name = word.substr(0, word.find('='));
    const auto near = name.size() > 2 ? text::nearest(name, option_names(command)) : std::nullopt;
    throw UsageError(fmt::format("unknown option '{}'{}", name,
                                 near ? fmt::format(", did you mean '{}'?", *near) : ""));
  }
  throw UsageError(fmt::format("unexpected argument '{}'", word));
}

std::string what_is_missing(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    const std::string name = command->get_name();
    if (name == "score") return "score needs a table of runs, as in smp-plan score runs.csv";
    if (name == "calibrate") {
      return "calibrate needs measured runs and --cluster, as in smp-plan calibrate runs.jsonl "
             "--cluster p4d.24xlarge";
    }
    if (name == "compare") {
      return "compare needs a plan and the report of its run, as in smp-plan compare plan.yaml "
             "report.json";
    }
    if (!command->get_option("plan")->empty()) {
      return fmt::format("{0} needs --rank R, as in smp-plan {0} plan.yaml --rank 3", name);
    }
    return fmt::format("{0} needs a plan or job file, as in smp-plan {0} plan.yaml", name);
  }
  return "a job file is missing, as in smp-plan model.yaml";
}

// What CLI11 could not place: mistyped options and commands.
void refuse_leftovers(const CLI::App& app, const std::string& job) {
  const auto asks = [](const CLI::App& of) {
    const std::vector<std::string> words = of.remaining();
    return !words.empty() && words.back() == "help";
  };
  for (const CLI::App* command : app.get_subcommands()) {
    if (asks(*command)) throw Information{command->help()};
  }
  if (asks(app)) throw Information{app.help()};
  for (const CLI::App* command : app.get_subcommands()) {
    for (const std::string& word : command->remaining()) refuse(*command, word);
  }
  for (const std::string& word : app.remaining()) {
    const auto near = text::nearest(job, command_names(app));
    if (word[0] != '-' && near) {
      throw UsageError(fmt::format("unknown command '{}', did you mean '{}'?", job, *near));
    }
    refuse(app, word);
  }
}

}  // namespace

std::string not_empty(const std::string& value) {
  return value.empty() ? "the value is empty" : "";
}

std::string above_zero(const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  const bool read = end != value.c_str() && *end == '\0';
  return read && number > 0 && std::isfinite(number)
             ? ""
             : fmt::format("'{}' is not a number above 0", value);
}

Run parse_command_line(int argc, const char* const* argv) {
  CLI::App app("", "smp-plan");
  app.formatter(std::make_shared<Help>());
  app.set_help_flag("-h,--help", "print this text");
  bool version = false;
  app.add_flag("--version", version, "print the version");
  Run run;
  add_plan_command(app, run);
  add_calibrate_command(app, run);
  add_compare_command(app, run);
  add_check_command(app, run);
  add_completion_command(app, run);
  add_export_command(app, run);
  add_frameworks_command(app, run);
  add_groups_command(app, run);
  add_import_command(app, run);
  add_init_command(app, run);
  add_layers_command(app, run);
  add_schedule_command(app, run);
  add_schema_command(app, run);
  add_models_command(app, run);
  add_score_command(app, run);
  app.allow_extras();
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    command->formatter(app.get_formatter());
    command->allow_extras();
  }
  if (argc == 3 && std::string_view(argv[1]) == "help") {
    for (const CLI::App* command : app.get_subcommands(nullptr)) {
      if (command->get_name() == argv[2]) throw Information{command->help()};
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    for (const CLI::App* command : app.get_subcommands()) throw Information{command->help()};
    throw Information{app.help()};
  } catch (const CLI::RequiredError&) {
    throw UsageError(what_is_missing(app));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // "--hosts: 1 required N missing"
    throw UsageError(fmt::format("{} needs a value", text.substr(0, text.find(':'))));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (version) throw Information{kVersion};
  const CLI::Option* job = app.get_option("job");
  if (!job->empty() && job->as<std::string>() == "help") throw Information{app.help()};
  refuse_leftovers(app, job->empty() ? "" : job->as<std::string>());
  if (!run) {
    throw UsageError("a job file is missing, as in smp-plan model.yaml");
  }
  return run;
}

}  // namespace smp
