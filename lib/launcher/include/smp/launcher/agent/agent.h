#pragma once

#include "smp/plan/system/file_descriptor.h"

namespace smp::agent {

// smp-launch --agent: what smp-launch starts on every host of --hosts. It speaks over its standard
// input and output, starts the ranks of its host, and stays with them until none is left. When the
// other side goes away, or says nothing for a while, it kills everything that it has started. Runs
// as two processes that guard each other (run_with_watchdog). Returns the exit code.
int run_agent();

// The same, over a connection (see Rendezvous).
int run_agent(system::FileDescriptor connection);

}  // namespace smp::agent
