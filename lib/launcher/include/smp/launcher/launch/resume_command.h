#pragma once

#include <string>

#include "smp/launcher/request/prepared_job.h"

namespace smp::run {
class RunFolder;
}

namespace smp::launch {

// What to tell of a run that has done all its steps.
std::string complete_text(const request::PreparedJob& job);

// "smp-launch --resume --run-dir runs/a plan.yaml": the options that the user gave, those about
// resuming aside, quoted for the shell.
std::string resume_command(const request::PreparedJob& job);

// The line, with its end, that tells this command, or that there is nothing to go on from;
// nothing where no rank has started, for then the same command starts it.
std::string go_on_text(const request::PreparedJob& job, const run::RunFolder& folder,
                       bool has_started);

}  // namespace smp::launch
