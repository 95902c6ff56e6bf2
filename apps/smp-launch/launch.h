#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/job/job.h"
#include "smp/plan/spec/plan.h"

namespace smp {

// The job that a request asks for, before anything is started or written: what a launch executes
// and a dry run prints.
struct PreparedJob {
  LaunchRequest request;
  bool goes_on_if_any = false;  // request.resume is what was found
  std::optional<Plan> plan;
  int world_size = 1;
  std::vector<std::string> command;
  std::string run_dir;                  // empty = none; of a plan, one that launch() names
  std::vector<hosts::HostSpec> hosts;   // none: the ranks run on this one
  std::vector<hosts::HostSpec> spares;  // take the place of hosts that are lost
  std::string host_order;               // why the hosts stand in this order; empty: as listed
};

// Reads the plan, if there is one. Throws ConfigError.
PreparedJob prepare(const LaunchRequest& request);

// Folder of the running program: the other programs of smp lie there too.
std::string own_folder();

// "SMP_COMM_TIMEOUT_S=30"
std::string comm_timeout_variable(std::chrono::milliseconds time);

// Starts the job and stays until it has ended. Returns the exit code. Throws ConfigError for what
// is wrong with the plan or the run folder.
int launch(PreparedJob job);

}  // namespace smp
