#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "command_line.h"
#include "files.h"
#include "screen.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/system/freed_memory.h"
#include "smp/plan/system/process_limits.h"
#include "smp/plan/system/standard_streams.h"

namespace {

using smp::ExitCode;

int run(int argc, char** argv) {
  const auto say = [](const std::string& text, ExitCode code) {
    smp::print(stderr, text + "\n");
    return static_cast<int>(code);
  };
  try {
    smp::system::check_limits({.stack_bytes = smp::system::kLeastStackBytes, .open_files = 0});
    return static_cast<int>(smp::parse_command_line(argc, argv)());
  } catch (const smp::Information& information) {
    std::fputs(information.text.c_str(), stdout);
    return static_cast<int>(ExitCode::kOk);
  } catch (const smp::UsageError& error) {
    return say(fmt::format("smp-plan: {}\nsmp-plan --help shows examples", error.what()),
               ExitCode::kUsage);
  } catch (const smp::ConfigError& error) {
    return say(error.what(), ExitCode::kBadConfig);  // begins with its file or its key
  } catch (const smp::NoFeasiblePlan& error) {
    return say(error.what(), ExitCode::kNoFeasiblePlan);
  } catch (const std::exception& error) {
    return say(fmt::format("smp-plan: {}", error.what()), ExitCode::kFailure);
  }
}

}  // namespace

int main(int argc, char** argv) {
  smp::system::keep_freed_memory();  // a search makes and frees one large schedule after the other
  const bool is_heard = smp::system::fill_standard_streams();
  const int code = run(argc, argv);
  // What was printed may still be in the buffer, and the disk behind it full.
  const bool flushed = std::fflush(stdout) == 0;
  if (is_heard && flushed && std::ferror(stdout) == 0) return code;
  std::fputs("smp-plan: standard output could not be written in full\n", stderr);
  return static_cast<int>(ExitCode::kFailure);
}
