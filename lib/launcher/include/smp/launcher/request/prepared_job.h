#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/request/launch_request.h"
#include "smp/plan/spec/plan.h"

namespace smp::request {

// The job that a request asks for, before anything is started or written. A launch executes it, and
// a dry run prints it. Plain data.
struct PreparedJob {
  LaunchRequest request;
  bool goes_on_if_any = false;  // request.resume is what was found
  std::optional<Plan> plan;
  int world_size = 1;
  std::vector<std::string> command;     // of every rank
  std::string run_dir;                  // empty = none; of a plan, one that launch() names
  std::vector<hosts::HostSpec> hosts;   // none: the ranks run on this one
  std::vector<hosts::HostSpec> spares;  // take the place of hosts that are lost
  std::string host_order;               // why the hosts stand in this order; empty: as listed
};

}  // namespace smp::request
