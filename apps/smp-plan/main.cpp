#include <cstdio>
#include <exception>

#include "command_line.h"
#include "files.h"
#include "smp/plan/errors.h"
#include "smp/plan/exit_code.h"

namespace {

using smp::ExitCode;

int run(int argc, char** argv) {
  const auto say = [](const char* text, ExitCode code) {
    std::fprintf(stderr, "smp-plan: %s\n", text);
    return static_cast<int>(code);
  };
  try {
    return static_cast<int>(smp::parse_command_line(argc, argv)());
  } catch (const smp::Information& information) {
    std::fputs(information.text.c_str(), stdout);
    return static_cast<int>(ExitCode::kOk);
  } catch (const smp::UsageError& error) {
    say(error.what(), ExitCode::kUsage);
    std::fputs("smp-plan --help shows examples\n", stderr);
    return static_cast<int>(ExitCode::kUsage);
  } catch (const smp::ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());  // begins with its file or its key
    return static_cast<int>(ExitCode::kBadConfig);
  } catch (const smp::NoFeasiblePlan& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(ExitCode::kNoFeasiblePlan);
  } catch (const std::exception& error) {
    return say(error.what(), ExitCode::kFailure);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run(argc, argv);
  // What was printed may still be in the buffer, and the disk behind it full.
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return code;
  std::fputs("smp-plan: standard output could not be written in full\n", stderr);
  return static_cast<int>(ExitCode::kFailure);
}
