#pragma once

#include <cstdint>
#include <string>

#include "launch.h"
#include "smp/launcher/run/run_folder.h"

namespace smp {

struct ResumePoint {
  int64_t step = 0;          // steps done in the checkpoint
  bool is_complete = false;  // that is all of them, and the weights that came of them are saved
};

// Where a resumed job goes on. Throws ConfigError for a checkpoint that is damaged as far as its
// manifest tells, of another training, or behind the plan's last step.
ResumePoint resume_point(const PreparedJob& job);

// Of one that is complete: what to tell.
std::string complete_text(const PreparedJob& job);

// "smp-launch --resume --run-dir runs/a plan.yaml": the options that the user gave, those about
// resuming aside, quoted for the shell.
std::string resume_command(const PreparedJob& job);

// The line, with its end, that tells this command, or that there is nothing to go on from;
// nothing where no rank has started, for then the same command starts it.
std::string go_on_text(const PreparedJob& job, const run::RunFolder& folder, bool has_started);

}  // namespace smp
