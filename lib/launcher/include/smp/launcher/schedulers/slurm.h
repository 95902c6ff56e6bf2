#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "smp/launcher/hosts/host_list.h"

namespace smp::schedulers {

// What Slurm says of the allocation that this process runs in, by its own variables.
struct SlurmAllocation {
  std::string nodes;           // SLURM_JOB_NODELIST: "n[1-3,7],big"
  std::string tasks_per_node;  // SLURM_TASKS_PER_NODE: "5,1(x3)"
};

// Throws ConfigError where there is none.
SlurmAllocation slurm_allocation(const std::vector<std::string>& environment);

// Its nodes, with the tasks of each as slots. One task on every node says nothing about ranks (that
// is how a launcher of its own is asked for): their slots stay open.
std::vector<hosts::HostSpec> hosts_of_slurm(const SlurmAllocation& allocation);

// Asks Slurm for its switches, by `scontrol show topology`: what it prints, or nothing where Slurm
// knows of none. Throws ConfigError if it cannot be asked.
std::string ask_slurm_for_switches();

// The first and the last of the ports at which srun may be connected to, of `scontrol show config`;
// 0 and 0 where it is free to choose, or nobody tells within 5 s.
std::pair<int, int> ask_slurm_for_ports();
std::pair<int, int> ports_of_srun(const std::string& config);  // of what that prints

// The nodes that a line of srun's says have failed: n2 and n3 of "srun: error: n[2-3]: tasks 1-2:
// Killed" and of "srun: error: Node failure on n[2-3]"; none where it says so of none. What stands
// in such a place and is no node may be among them.
std::set<std::string> nodes_failed_by(const std::string& line);

}  // namespace smp::schedulers
